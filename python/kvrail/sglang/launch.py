"""Starts SGLang with kvrail where it expects LMCache: kvrail-sglang --model-path ... (any options of
sglang.launch_server).

SGLang imports its external cache by fixed module names. This module puts ours under them when it is imported, which the
processes that SGLang spawns do again, because it is their main module, too. Nothing of SGLang is changed.
"""
from __future__ import annotations

import importlib.util
import os
import runpy
import sys
import types
from typing import Dict, List, Optional

from .connector import KvrailConnector, LayerwiseConnector, LoadMetadata, StoreMetadata

# Options that decide over the bytes of the KV cache; they go into the model's identity.
IDENTITY_OPTIONS = (
    "--dtype",
    "--kv-cache-dtype",
    "--quantization",
    "--quantization-param-path",
    "--modelopt-quant",
    "--torchao-config",
    "--revision",
    "--load-format",
    "--json-model-override-args",
    "--attention-backend",
    "--prefill-attention-backend",
    "--decode-attention-backend",
    "--enable-mla",
    "--enable-dp-attention",
    "--nsa-prefill-backend",
    "--nsa-decode-backend",
)
REFUSED_OPTIONS = {
    "--enable-lora": "SGLang does not tell its external cache which adapter a request uses, so their KV would be mixed",
    "--lora-paths": "SGLang does not tell its external cache which adapter a request uses, so their KV would be mixed",
    "--config": "options that decide over the KV's bytes would not be seen in that file; give its options here",
}


class Config:
    """What SGLang reads of its cache's configuration file: mp_host and mp_port. Any other name is None."""

    def __init__(self, values: Dict[str, str]) -> None:
        self.values = values
        self.mp_host: Optional[str] = values.get("kvrail_url") or values.get("mp_host")
        self.mp_port: Optional[int] = int(values["mp_port"]) if values.get("mp_port") else None

    def __getattr__(self, name: str) -> Optional[str]:
        if name.startswith("_"):
            raise AttributeError(name)
        values: Dict[str, str] = self.__dict__.get("values", {})
        return values.get(name)


def get_config(path: Optional[str] = None) -> Config:
    """Lines `name: value`; comments and everything that is nested is left alone."""
    path = path or os.environ.get("LMCACHE_CONFIG_FILE") or os.devnull
    values = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            name, colon, value = line.split("#")[0].rstrip().partition(":")
            if colon and name and not name[0].isspace() and value.strip():
                values[name.strip()] = value.strip().strip("'\"")
    return Config(values)


def provided() -> Dict[str, Dict[str, object]]:
    """The modules that SGLang imports, and what of them."""
    return {
        "lmcache": {},
        "lmcache.integration": {},
        "lmcache.integration.sglang": {},
        "lmcache.integration.sglang.multi_process_adapter": {"LMCacheMPConnector": KvrailConnector},
        "lmcache.integration.sglang.sglang_adapter": {
            "LMCacheLayerwiseConnector": LayerwiseConnector,
            "LoadMetadata": LoadMetadata,
            "StoreMetadata": StoreMetadata,
        },
        "lmcache.integration.sglang.utils": {"lmcache_get_config": get_config},
    }


def install() -> None:
    """RuntimeError when the real one was imported before."""
    loaded = sys.modules.get("lmcache")
    if loaded is not None and not getattr(loaded, "provided_by_kvrail", False):
        raise RuntimeError("kvrail: LMCache itself is imported already; kvrail.sglang.launch must come before it")
    for name, contents in provided().items():
        module = sys.modules.setdefault(name, types.ModuleType(name, "Provided by kvrail.sglang.launch."))
        module.__dict__.update(contents, provided_by_kvrail=True)
        if "." not in name or name.count(".") < 3:
            module.__path__ = []  # a package
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)


def in_full(name: str) -> str:
    """The option that SGLang takes an abbreviated one for, when it is one of those that matter here."""
    known = (*REFUSED_OPTIONS, *IDENTITY_OPTIONS, "--enable-lmcache", "--lmcache-config-file")
    if name in (*known, "--model") or not name.startswith("--") or len(name) < 4:
        return name
    return next((option for option in known if option.startswith(name)), name)


def prepared(arguments: List[str]) -> List[str]:
    """SGLang's arguments with ours added, and $KVRAIL_SGLANG_ARGUMENTS set for the processes to come. SystemExit(2) for
    options that would mix bytes which differ."""
    said = []
    names = [in_full(argument.split("=")[0]) for argument in arguments]
    for number, (argument, name) in enumerate(zip(arguments, names)):
        if name in REFUSED_OPTIONS:
            print(f"kvrail-sglang: {name} can't be used: {REFUSED_OPTIONS[name]}", file=sys.stderr)
            raise SystemExit(2)
        if name in IDENTITY_OPTIONS:
            follows = arguments[number + 1] if number + 1 < len(arguments) else ""
            value = argument.partition("=")[2] if "=" in argument else ("" if follows.startswith("--") else follows)
            said.append(f"{name}={value}")
            if name == "--kv-cache-dtype" and value not in ("", "auto"):
                os.environ.setdefault("KVRAIL_KV_DTYPE", value)
    os.environ["KVRAIL_SGLANG_ARGUMENTS"] = " ".join(sorted(said))
    added = list(arguments)
    if "--enable-lmcache" not in names:
        added.append("--enable-lmcache")
    if "--lmcache-config-file" not in names:
        added += ["--lmcache-config-file", os.devnull]
    return added


install()


def main() -> None:
    sys.argv[1:] = prepared(sys.argv[1:])
    if importlib.util.find_spec("sglang") is None:
        sys.exit("kvrail-sglang: SGLang is not installed in this Python: install kvrail into SGLang's environment")
    # This module stays the main one, so that spawned processes import it, too.
    runpy.run_module("sglang.launch_server", run_name="__main__", alter_sys=False)


if __name__ == "__main__":
    main()
