#!/usr/bin/env bash
# Installs the library into a temporary prefix and builds small programs against it, as a user does: C and C++, shared and
# static, by pkg-config and by CMake. Each has a ring_init of its own, which must not clash with the library's.
# usage: consumer.sh BUILD_DIR
set -eu
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --component library --prefix "$work/prefix" >"$work/install.log"
libdir=$(dirname "$(find "$work/prefix" -name libkvrail.a)")
export PKG_CONFIG_PATH=$libdir/pkgconfig LD_LIBRARY_PATH=$libdir

# Only kvr_* is visible, in both, and all that the header declares is there.
nm -D --defined-only "$libdir/libkvrail.so" | awk '$2 != "A" { print $3 }' | sed 's/@.*//' | sort -u >"$work/shared"
nm --defined-only "$libdir/libkvrail.a" | awk '$2 ~ /[A-Z]/ { print $3 }' | sort -u >"$work/static"
for kind in shared static; do
	if grep -v '^kvr_' "$work/$kind"; then
		echo "consumer: the $kind library shows the names above, which do not begin with kvr_" >&2
		exit 1
	fi
done
cat >"$work/declared.c" <<'C'
#include <kvrail.h>
C
gcc -E $(pkg-config --cflags kvrail) "$work/declared.c" | grep -v '^#' | tr -d '\n' | tr ';' '\n' | grep -v typedef |
	grep -v 'static inline' | grep -o '\<kvr_[a-z0-9_]* *([^*]' | sed 's/ *(.*//' | sort -u >"$work/declared"
for kind in shared static; do
	missing=$(comm -23 "$work/declared" "$work/$kind")
	if [ -n "$missing" ]; then
		echo "consumer: declared in kvrail.h and not in the $kind library:" $missing >&2
		exit 1
	fi
done
first=$(head -n 1 "$work/declared")
[ -n "$first" ] || { echo "consumer: kvrail.h declares no function" >&2; exit 1; }

cat >"$work/program.c" <<C
#include <kvrail.h>
#include <stdio.h>
int ring_init(void);
int ring_init(void) { return 7; }
int main(void)
{
	/* Taken by address, so that it must be linked and need not be called. */
	void (*volatile function)(void) = (void (*)(void))&$first;
	return function != 0 && ring_init() == 7 ? 0 : 1;
}
C
cp "$work/program.c" "$work/program.cc"
cflags=$(pkg-config --cflags kvrail)
gcc -Wall -o "$work/c_shared" "$work/program.c" $cflags $(pkg-config --libs kvrail)
g++ -Wall -o "$work/cc_shared" "$work/program.cc" $cflags $(pkg-config --libs kvrail)
private=$(pkg-config --libs --static kvrail | sed "s,-lkvrail,$libdir/libkvrail.a,")
gcc -Wall -o "$work/c_static" "$work/program.c" $cflags $private
g++ -Wall -o "$work/cc_static" "$work/program.cc" $cflags $private
cat >"$work/CMakeLists.txt" <<'C'
cmake_minimum_required(VERSION 3.16)
project(consumer C)
find_package(kvrail REQUIRED)
add_executable(cmake_shared program.c)
target_link_libraries(cmake_shared PRIVATE kvrail::kvrail)
add_executable(cmake_static program.c)
target_link_libraries(cmake_static PRIVATE kvrail::static)
C
cmake -G Ninja -S "$work" -B "$work" -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/cmake.log" 2>&1 &&
	cmake --build "$work" >>"$work/cmake.log" 2>&1 || { cat "$work/cmake.log" >&2; exit 1; }
for program in c_shared cc_shared c_static cc_static cmake_shared cmake_static; do
	"$work/$program" || { echo "consumer: $program fails" >&2; exit 1; }
done
echo "consumer: $(wc -l <"$work/declared") functions; C and C++, shared and static, pkg-config and CMake"
