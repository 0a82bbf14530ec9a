"""Builds the two extension modules; all else is in pyproject.toml."""
import sys
from pathlib import Path

from setuptools import Extension, setup

sys.path.insert(0, str(Path(__file__).resolve().parent))
from kvrail_build import include_dirs  # noqa: E402

setup(
    cffi_modules=["kvrail_build.py:ffi"],
    ext_modules=[
        Extension(
            "kvrail._tokens",
            ["kvrail/_tokens.c", "kvrail/_source.c", "kvrail/_history.c", "kvrail/_gate.c"],
            include_dirs=include_dirs,
            depends=["kvrail/_tokens.h"],
            extra_compile_args=["-O3", "-Wall", "-Wextra", "-fvisibility=hidden"],
        )
    ],
)
