# cmake -DSOURCE=... -DOUTPUT=... -P commit.cmake: writes the commit of the sources into a source, touched only when it changes.
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --exclude=* --abbrev=12
	OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed OR "${commit}" STREQUAL "")
	set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "/* Made by cmake/commit.cmake. */\n#include \"app/kvrail-bench/machine.h\"\n\nconst char machine_commit[] = \"@commit@\";\n" @ONLY)
