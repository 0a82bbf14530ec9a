#!/usr/bin/env python3
"""Google Benchmark's own compare.py reads what kvrail-bench writes, and what the programs of bench/ write where there are some.

usage: compare_results.py BUILD_DIR    exit code 77: compare.py is not installed (Debian: libbenchmark-tools)
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

COMPARE = "/usr/share/benchmark/compare.py"
PYTHON = "/usr/bin/python3"  # the one that Debian's packages are for
ROUNDS = 9  # as many as the tool's U test asks for
GROWN = 1000  # more than rounds differ on any machine
# compare.py takes two functions of scipy, which weighs 200 MB with what it wants. Without it the geometric mean is this, and the U test
# is left out.
STAND_IN = """
import numpy


def gmean(values):
    return numpy.exp(numpy.log(numpy.array(values)).mean(axis=0))


def mannwhitneyu(*_, **__):
    raise NotImplementedError
"""


def has(*modules):
    return subprocess.call([PYTHON, "-c", "import " + ", ".join(modules)], stderr=subprocess.DEVNULL) == 0


def ok(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, **more)
    if done.returncode:
        raise AssertionError("%s: exit code %d: %s" % (" ".join(command), done.returncode, (done.stdout + done.stderr)[-2000:]))
    return done.stdout


class Compare(unittest.TestCase):
    build = ""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="kvrail-compare-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.environment = dict(os.environ)
        self.scipy = has("scipy.stats") and not os.environ.get("KVRAIL_WITHOUT_SCIPY")
        if not self.scipy:
            os.makedirs(self.path("scipy"))
            for name, text in (("__init__.py", ""), ("stats.py", STAND_IN)):
                with open(self.path(os.path.join("scipy", name)), "w") as file:
                    file.write(text)
            self.environment["PYTHONPATH"] = self.folder

    def path(self, name):
        return os.path.join(self.folder, name)

    def compare(self, before, after):
        """{name: its row}"""
        out = self.path("compared.json")
        options = [] if self.scipy else ["--no-utest"]
        text = ok([PYTHON, COMPARE, "--dump_to_json", out, *options, "benchmarks", before, after], env=self.environment)
        with open(out) as file:
            return text, {row["name"]: row for row in json.load(file)}

    def check(self, before, after):
        """Two runs of one program: every benchmark of the first finds its like in the second, and times that grew are seen."""
        with open(before) as file:
            result = json.load(file)
        names = {row["run_name"] for row in result["benchmarks"] if row.get("run_type") != "aggregate"}
        self.assertTrue(names)
        text, rows = self.compare(before, after)
        for name in names:
            self.assertIn(name, rows, text)
            self.assertTrue(rows[name]["measurements"], name)
        for row in result["benchmarks"]:
            row["real_time"] *= GROWN
        grown = self.path("grown.json")
        with open(grown, "w") as file:
            json.dump(result, file)
        text, rows = self.compare(before, grown)
        for name in names:
            for measurement in rows[name]["measurements"]:
                self.assertAlmostEqual(measurement["time"], GROWN - 1, places=3, msg=name)
                self.assertAlmostEqual(measurement["cpu"], 0.0, places=3, msg=name)
        self.assertIn("OVERALL_GEOMEAN", text)
        return rows

    def serve(self):
        socket, log = self.path("kvrail.sock"), open(self.path("kvraild.log"), "w+")
        self.addCleanup(log.close)
        server = subprocess.Popen([os.path.join(self.build, "bin", "kvraild"), "--socket", socket, "--http", "off", "--l1-size", "64MiB",
                                   "--log-level", "warn"], stdout=log, stderr=subprocess.STDOUT)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        end = time.monotonic() + 60
        while time.monotonic() < end and server.poll() is None:
            with open(log.name) as file:
                if " ready: " in file.read():
                    return socket
            time.sleep(0.05)
        self.fail("kvraild is not ready")

    def test_results_of_kvrail_bench(self):
        socket, results = self.serve(), [self.path("before.json"), self.path("after.json")]
        for result in results:
            ok([os.path.join(self.build, "bin", "kvrail-bench"), "load", "--server", "unix:" + socket, "--op", "ping", "--seconds", "1",
                "--rounds", str(ROUNDS), "--ceiling=no", "--json", result])
        rows = self.check(*results)
        tested = [row for row in rows.values() if len(row["measurements"]) == ROUNDS]
        self.assertEqual(len(tested), 1, "one row has the rounds")
        if self.scipy:
            self.assertLess(tested[0]["utest"]["time_pvalue"], 0.05, "the U test sees that the rounds grew")

    def test_results_of_a_program_of_bench(self):
        program = os.path.join(self.build, "bench", "bench_hash")
        if not os.path.exists(program):
            self.skipTest("this build has no programs of bench/")
        results = [self.path("before.json"), self.path("after.json")]
        for result in results:
            ok([program, "--benchmark_min_time=0.001", "--benchmark_repetitions=%d" % ROUNDS, "--benchmark_out_format=json",
                "--benchmark_out=" + result])
        self.check(*results)


def main():
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    if not os.path.exists(COMPARE) or not has("numpy"):
        print("skipped: %s and numpy are not there: install libbenchmark-tools and python3-numpy (scripts/deps --test)" % COMPARE)
        return 77
    Compare.build = os.path.abspath(sys.argv[1])
    return not unittest.main(argv=[sys.argv[0]], exit=False).result.wasSuccessful()


if __name__ == "__main__":
    sys.exit(main())
