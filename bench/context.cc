// context.cc - linked into every benchmark: what the figures were measured on goes into its result, and what makes them
// worth little is said before the first of them.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <string>

#include "app/kvrail-bench/devices.h"
#include "app/kvrail-bench/machine.h"

namespace
{

const bool noted = [] {
	machine found;
	text warnings = {}, devices = {};

	machine_read(&found);
	benchmark::AddCustomContext("commit", found.commit);
	benchmark::AddCustomContext("build", found.debug ? "debug" : "release");
	benchmark::AddCustomContext("processor", found.processor);
	benchmark::AddCustomContext("kernel", found.kernel);
	benchmark::AddCustomContext("compiler", found.compiler);
	benchmark::AddCustomContext("governor", found.governor[0] ? found.governor : "unknown");
	benchmark::AddCustomContext("numa", found.numa);
	devices_append_words(&devices);
	benchmark::AddCustomContext("devices", devices.bytes ? devices.bytes : "unknown");
	text_fini(&devices);
	benchmark::AddCustomContext("virtual", found.virtual_machine ? "true" : "false");
	machine_append_warnings(&found, 0, &warnings);
	if (warnings.length > 0)
		std::fputs(warnings.bytes, stderr);
	text_fini(&warnings);
	return true;
}();

} // namespace
