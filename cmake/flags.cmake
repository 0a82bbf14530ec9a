# Flags that every object is built with, on the interface target kvr_flags.
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_INTERPROCEDURAL_OPTIMIZATION OFF)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

# The processor's baseline, never the build machine's: what is faster on newer ones is chosen at run time.
set(CMAKE_C_FLAGS_RELEASE "-O2 -g -DNDEBUG")
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g -DNDEBUG")
set(CMAKE_C_FLAGS_DEBUG "-Og -g")
set(CMAKE_CXX_FLAGS_DEBUG "-Og -g")

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

add_library(kvr_flags INTERFACE)
target_include_directories(kvr_flags INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(kvr_flags INTERFACE Threads::Threads ${CMAKE_DL_LIBS} m)
target_compile_options(kvr_flags INTERFACE -Wall -Wextra -Werror $<$<COMPILE_LANGUAGE:C>:-Wshadow> -Wvla -fno-omit-frame-pointer
	$<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes> $<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes>)
# Defined empty, so that a source that says it as well does not redefine it. C++ compilers define it themselves.
target_compile_options(kvr_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:-D_GNU_SOURCE=>)
target_compile_definitions(kvr_flags INTERFACE KVRAIL_VERSION="${PROJECT_VERSION}"
	$<$<NOT:$<CONFIG:Release>>:KVRAIL_FAULT_POINTS>)

if(CMAKE_C_COMPILER_ID STREQUAL GNU)
	# gcc guesses this one wrongly where it optimises little; -O2 is where it is checked.
	target_compile_options(kvr_flags INTERFACE $<$<NOT:$<CONFIG:Release>>:-Wno-maybe-uninitialized>)
endif()

if(KVRAIL_SANITIZE)
	set(sanitize -fsanitize=${KVRAIL_SANITIZE} -fno-sanitize-recover=all)
	target_compile_options(kvr_flags INTERFACE ${sanitize})
	target_link_options(kvr_flags INTERFACE ${sanitize})
	if(CMAKE_C_COMPILER_ID STREQUAL GNU AND KVRAIL_SANITIZE STREQUAL thread)
		# gcc warns that ThreadSanitizer does not model fences: it may then report a race that is none, never miss one more.
		target_compile_options(kvr_flags INTERFACE -Wno-tsan)
	endif()
endif()
if(KVRAIL_FUZZ)
	if(NOT CMAKE_C_COMPILER_ID MATCHES Clang)
		message(FATAL_ERROR "KVRAIL_FUZZ needs clang (libFuzzer): use the preset `fuzz`")
	endif()
	target_compile_options(kvr_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(KVRAIL_COVERAGE)
	target_compile_options(kvr_flags INTERFACE --coverage -fprofile-update=atomic)
	target_link_options(kvr_flags INTERFACE --coverage)
endif()
