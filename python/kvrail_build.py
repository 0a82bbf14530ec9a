"""The cffi module kvrail._kvrail: the functions of kvrail.h, declared from the header itself.

API mode: a compiler checks each struct and call against the header, and a call costs less than in ABI mode.
libkvrail is linked in statically where it can be, so that a wheel works alone and can't meet a library of another version.

Where header and library are, in this order:
  KVRAIL_BUILD_TREE=FOLDER  a CMake build folder of kvrail (absolute, of build/release for instance), and the tree it is of
  pkg-config kvrail         an installed one
"""
import os
import re
import subprocess
import sys
from pathlib import Path

from cffi import FFI


def pkg_config(*arguments: str) -> list[str]:
    try:
        return subprocess.run(["pkg-config", *arguments, "kvrail"], check=True, capture_output=True, text=True).stdout.split()
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(
            "kvrail: libkvrail was not found: set KVRAIL_BUILD_TREE to a CMake build folder of kvrail, or install kvrail "
            f"(cmake --install) and let PKG_CONFIG_PATH name its lib/pkgconfig ({error})"
        )


def find() -> tuple[Path, list[str], list[str]]:
    """The header, include folders, and what the linker is told."""
    tree = os.environ.get("KVRAIL_BUILD_TREE")
    if tree:
        archive = Path(tree).resolve() / "lib" / "libkvrail.a"
        cache = archive.parent.parent / "CMakeCache.txt"
        home = re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", cache.read_text(), re.M) if cache.exists() else None
        if home is None:
            sys.exit(f"kvrail: KVRAIL_BUILD_TREE={tree} is no CMake build folder of kvrail; it must be absolute, since pip builds elsewhere")
        if not archive.exists():
            sys.exit(f"kvrail: {archive} is not there: build it first (cmake --build {tree})")
        header = Path(home[1]) / "include" / "kvrail.h"
        private = re.search(r"^Requires\.private:(.*)$", (archive.parent.parent / "kvrail.pc").read_text(), re.M)
        crypto = ["-lcrypto"] if private and "libcrypto" in private[1] else []
        return header, [str(header.parent)], [str(archive), *crypto, "-lpthread", "-ldl", "-lm"]
    folder = pkg_config("--variable=includedir")[0]
    libraries = pkg_config("--libs", "--static")
    archive = Path(pkg_config("--variable=libdir")[0]) / "libkvrail.a"
    if archive.exists():
        libraries = [str(archive) if word == "-lkvrail" else word for word in libraries]
    return Path(folder) / "kvrail.h", [folder], libraries


def declarations(header: str) -> str:
    """kvrail.h as cffi reads it: without comments and the preprocessor's lines, but with its plain numbers."""
    header = re.sub(r"/\*.*?\*/|//[^\n]*", "", header, flags=re.S)
    header = header.replace("\\\n", " ")
    numbers = re.findall(r"^#define (KVR_[A-Z0-9_]+)[ \t]+(?:\d+u?|UINT32_MAX)[ \t]*$", header, re.M)
    header = re.sub(r'#ifdef __cplusplus.*?#endif', "", header, flags=re.S)
    header = re.sub(r"^#.*$", "", header, flags=re.M).replace("KVR_API", "")
    return header + "".join(f"#define {name} ...\n" for name in numbers)


header_path, include_dirs, link = find()
ffi = FFI()
ffi.cdef(declarations(header_path.read_text()))
ffi.set_source("kvrail._kvrail", "#include <kvrail.h>\n", include_dirs=include_dirs, extra_link_args=link)
