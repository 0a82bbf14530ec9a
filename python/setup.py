"""Builds the two extension modules; all else is in pyproject.toml."""
from setuptools import Extension, setup

setup(
    cffi_modules=["kvrail_build.py:ffi"],
    ext_modules=[
        Extension(
            "kvrail._tokens",
            ["kvrail/_tokens.c", "kvrail/_source.c", "kvrail/_history.c"],
            depends=["kvrail/_tokens.h"],
            extra_compile_args=["-O3", "-Wall", "-Wextra", "-fvisibility=hidden"],
        )
    ],
)
