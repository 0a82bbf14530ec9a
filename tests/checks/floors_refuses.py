#!/usr/bin/env python3
"""Shows that scripts/check-floors refuses each kind of violation, one at a time, and lets a clean tree pass."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]

CLEAN = {
    "include/kvrail.h": "#include <stdint.h>\nint kvr_open(void);\n",
    "src/base/ring.h": "/* TODOs and strcpy( in a word are none */\nint ring_init(void);\n",
    "src/base/log.c": "#include <stdio.h>\nstatic int level;\nint log_level(void);\nint log_level(void) { return level++; }\n",
    "src/protocol/wire.h": '#include "base/ring.h"\n#include <sys/types.h>\n',
    "src/config/config.h": '#include "base/ring.h"\n',
    "src/poll/core.h": "#include <hwloc.h>\n",
    "src/verbs/driver.h": "#include <infiniband/verbs.h>\n",
    "src/verbs/local/local.h": '#include "verbs/driver.h"\n',
    "src/verbs/sim/sim.h": '#include "verbs/driver.h"\n',
    "src/gpu/gpu.h": "/* CUDA loads cuInit */\n",
    "src/gpu/gpu_cuda.c": "#include <cuda.h>\nint f(void) { return cuInit(0); }\n",
    "src/tier/table.h": '#include "protocol/wire.h"\n',
    "src/tier/table_hot.h": '#include "tier/table.h"\n',
    "src/tier/table.c": '#include "tier/table_hot.h"\nstatic const char *const names[] = {"a"};\nconst char *f(void) { return names[0]; }\n',
    "src/worker/mailbox.h": "int m;\n",
    "src/worker/connection.h": '#include "verbs/driver.h"\n',
    "src/worker/step.c": '#include "tier/table_hot.h"\n/* sprintf( */ const char *s = "strcpy(a, b) \\" cuInit(0)";\n',
    "src/client/client.c": '#include "kvrail.h"\n#include "verbs/driver.h"\n',
    "src/mgmt/mgmt.c": '#include "worker/mailbox.h"\n#include "tier/table.h"\nint f(struct o *o) { return o->gets(o); }\n',
    "src/worker/worker.h": "int w;\n",
    "src/mgmt/server.c": '#include "worker/worker.h"\n',
    "src/app/kvraild/main.c": '#include "mgmt/mgmt.h"\n#include "app/common/options.h"\nint running;\n',
    "src/app/common/options.h": "int o;\n",
    "src/mgmt/mgmt.h": "int g;\n",
    "tests/base/test_ring.c": '#include "base/ring.h"\nchar name[] = "/tmp/XXXXXX";\n',
    "bench/bench_table.cc": '#include "tier/table_hot.h"\n',
}

# name, file, text that is appended, what the finding must say
VIOLATIONS = [
    ("a higher floor", "src/base/ring.h", '#include "tier/table.h"', "includes go down only"),
    ("the same floor", "src/tier/table.h", '#include "verbs/driver.h"', "on the same floor"),
    ("worker to client", "src/worker/step.c", '#include "client/client.h"', "on the same floor"),
    ("mgmt reaches into worker", "src/mgmt/mgmt.c", '#include "worker/connection.h"', "mgmt may include worker/mailbox.h"),
    ("the management core knows a worker", "src/mgmt/mgmt.c", '#include "worker/worker.h"', "mgmt may include worker/mailbox.h"),
    ("the server object reaches into a worker", "src/mgmt/server.c", '#include "worker/connection.h"', "mgmt may include worker/mailbox.h"),
    ("client uses the server", "src/client/client.c", '#include "tier/table.h"', "client may include nothing"),
    ("driver to driver", "src/verbs/sim/sim.h", '#include "verbs/local/local.h"', "do not know each other"),
    ("infiniband outside verbs", "src/worker/step.c", "#include <infiniband/verbs.h>", "which only src/verbs/*"),
    ("hwloc outside poll", "src/app/kvraild/main.c", "#include <hwloc.h>", "which only src/poll/*"),
    ("cuda.h outside gpu", "src/client/client.c", "#include <cuda.h>", "which only src/gpu/*"),
    ("a second file of gpu names CUDA", "src/gpu/gpu.h", "int x = CU_MEMHOSTREGISTER_PORTABLE;", "names of"),
    ("CUDA outside gpu", "src/tier/table.c", "int x(void) { return cuMemAlloc(0, 1); }", "names cuMemAlloc"),
    ("stdio in protocol", "src/protocol/wire.h", "#include <stdio.h>", "never does"),
    ("unistd in protocol", "src/protocol/wire.h", "#include <unistd.h>", "never does"),
    ("sockets in protocol", "src/protocol/wire.h", "#include <sys/socket.h>", "never does"),
    ("time in protocol", "src/protocol/wire.h", "#include <time.h>", "never does"),
    ("malloc in protocol", "src/protocol/wire.h", "static void *x(void) { return malloc (4); }", "calls malloc"),
    ("clock in protocol", "src/protocol/wire.h", "static long x(void) { return clock_now_ns(); }", "calls clock_now_ns"),
    ("src includes tests", "src/base/ring.h", '#include "tests/support/world.h"', "never includes tests"),
    ("src includes tests by path", "src/base/ring.h", '#include "../../tests/support/world.h"', "never includes tests"),
    ("a header without folder", "src/base/ring.h", '#include "log.h"', "names no folder"),
    ("a header that is not there", "src/tier/table.c", '#include "base/rong.h"', "does not exist"),
    ("the public header includes ours", "include/kvrail.h", '#include "base/ring.h"', "public header includes"),
    ("the public header in the server", "src/worker/step.c", '#include "kvrail.h"', "which only src/client/*"),
    ("a hot header in a header", "src/worker/connection.h", '#include "tier/table_hot.h"', "hot inline code"),
    ("a hot header in mgmt", "src/mgmt/mgmt.c", '#include "tier/table_hot.h"', "hot inline code"),
    ("a folder without floor", "src/extra/extra.h", '#include "base/ring.h"', "has no floor"),
    ("unfinished work in src", "src/base/ring.h", "/* TO" "DO: more */", "in a source"),
    ("unfinished work in tests", "tests/base/test_ring.c", "/* FIX" "ME */", "in a source"),
    ("strcpy", "src/mgmt/mgmt.c", "void x(char *a, char *b) { strcpy(a, b); }", "calls strcpy"),
    ("strcat", "src/mgmt/mgmt.c", "void x(char *a, char *b) { strcat(a, b); }", "calls strcat"),
    ("sprintf", "src/mgmt/mgmt.c", 'void x(char *a) { sprintf(a, "b"); }', "calls sprintf"),
    ("gets", "src/mgmt/mgmt.c", "void x(char *a) { gets(a); }", "calls gets"),
    ("rand", "src/mgmt/mgmt.c", "int x(void) { return rand(); }", "calls rand"),
    ("strtok", "src/mgmt/mgmt.c", 'char *x(char *a) { return strtok(a, ","); }', "calls strtok"),
    ("atoi", "src/mgmt/mgmt.c", "int x(char *a) { return atoi(a); }", "calls atoi"),
    ("a file too long", "src/mgmt/mgmt.c", "\n" * 701, "at most 700"),
]

OBJECT_VIOLATIONS = [
    ("a counter", "static int hits; int f2(void); int f2(void) { return hits++; }", "hits"),
    ("an initialised variable", "int mode = 3;", "mode"),
    ("a static of a function", "int f2(void); int f2(void) { static long last = 1; return (int)last++; }", "last"),
    ("a variable of a thread", "static __thread int depth; int f2(void); int f2(void) { return depth++; }", "depth"),
]


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def check(root, *more):
    return subprocess.run([sys.executable, ROOT / "scripts/check-floors", "--root", root, *more], capture_output=True, text=True,
                          check=False)


def compile_objects(root, names):
    shutil.rmtree(root / "build", ignore_errors=True)
    for name in names:
        out = root / "build" / "kvr_x.dir" / (name + ".o")
        out.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cc", "-fPIC", "-c", "-o", out, root / name], check=True)


def main():
    failed = 0

    def verdict(name, good, output):
        nonlocal failed
        print(f"{'ok  ' if good else 'FAIL'} {name}")
        if not good:
            failed += 1
            print(output)

    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        write(root, CLEAN)
        result = check(root)
        verdict("a clean tree passes", result.returncode == 0, result.stdout + result.stderr)
        for name, file, text, say in VIOLATIONS:
            original = CLEAN.get(file, "")
            write(root, {file: original + text + "\n"})
            result = check(root)
            findings = [line for line in result.stdout.splitlines() if ": error: " in line]
            verdict(f"refused: {name}", result.returncode == 1 and len(findings) >= 1 and all(" fix: " in line for line in findings)
                    and any(line.startswith(file + ":") and say in line for line in findings), result.stdout + result.stderr)
            (root / file).unlink()
            if file in CLEAN:
                write(root, {file: original})
        write(root, {"src/mgmt/mgmt.c": "\n" * 650})
        result = check(root)
        verdict("warned: a long file", result.returncode == 0 and "1 warnings" in result.stdout, result.stdout)
        write(root, {"src/mgmt/mgmt.c": CLEAN["src/mgmt/mgmt.c"]})

        write(root, {"src/tier/names.c": CLEAN["src/tier/table.c"].split("\n", 1)[1]})
        compile_objects(root, ["src/base/log.c", "src/tier/names.c"])
        result = check(root, "--objects", root / "build")
        verdict("objects: constants and the named exceptions pass", result.returncode == 0, result.stdout + result.stderr)
        for name, text, variable in OBJECT_VIOLATIONS:
            write(root, {"src/tier/names.c": text + "\n"})
            compile_objects(root, ["src/tier/names.c"])
            result = check(root, "--objects", root / "build")
            verdict(f"refused: {name}", result.returncode == 1 and variable in result.stdout, result.stdout + result.stderr)
    print(f"{failed} failed")
    return 1 if failed else 0


sys.exit(main())
