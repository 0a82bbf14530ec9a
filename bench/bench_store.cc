// STORE of new pages in shared memory through the whole stack (libkvrail, local driver, worker, management core), one
// client with one request at a time, as a ratio to memcpy of the same page list in the same order in the same run.
#include "stack_pages.h"

namespace
{

void store(benchmark::State &state)
{
	bench::run_pages(state, true);
}

BENCHMARK(store)
	->ArgsProduct({ { 4096, 16384, 32768, 131072 }, { 32 << 20 } })
	->Args({ 32768, 4 << 20 })
	->ArgNames({ "page", "request" })
	->UseManualTime()
	->Iterations(9)
	->Unit(benchmark::kMillisecond);

} // namespace

BENCHMARK_MAIN();
