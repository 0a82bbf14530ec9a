#!/usr/bin/env python3
"""scripts/bench-report compares by ratio and says so by its exit code; scripts/scaling agrees with its simulation and with the
page that was made from it; the pictures are well-formed."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as tree

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "bench", "report"))
sys.dont_write_bytecode = True
import svg  # noqa: E402


def run(script, *arguments):
    return subprocess.run([sys.executable, os.path.join(ROOT, "scripts", script), *arguments], capture_output=True, text=True)


class Report(unittest.TestCase):
    def compare(self, old, new):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for name, figures in (("old", old), ("new", new)):
                paths.append(os.path.join(folder, name))
                with open(paths[-1], "w") as file:
                    json.dump({"figures": figures}, file)
            return run("bench-report", "--compare", *paths)

    def figure(self, value, better="higher", ratio=None):
        return {"RETRIEVE": {"value": value, "unit": "GB/s", "better": better, "ratio": ratio}}

    def test_what_is_as_fast_is_good(self):
        self.assertEqual(self.compare(self.figure(5.0), self.figure(4.9)).returncode, 0)

    def test_what_became_slower_is_marked_and_told_by_the_exit_code(self):
        done = self.compare(self.figure(5.0), self.figure(4.0))
        self.assertEqual(done.returncode, 3)
        self.assertIn("slower", done.stdout)

    def test_a_time_that_grew_is_slower(self):
        self.assertEqual(self.compare(self.figure(5.0, "lower"), self.figure(6.0, "lower")).returncode, 3)
        self.assertEqual(self.compare(self.figure(6.0, "lower"), self.figure(5.0, "lower")).returncode, 0)

    def test_a_slower_machine_is_no_slower_code(self):
        """Half the bytes a second, of half the memcpy."""
        self.assertEqual(self.compare(self.figure(6.0, ratio=1.2), self.figure(3.0, ratio=1.2)).returncode, 0)
        self.assertEqual(self.compare(self.figure(6.0, ratio=1.2), self.figure(6.0, ratio=0.9)).returncode, 3)

    def test_what_is_no_report_is_wrong_usage(self):
        done = run("bench-report", "--compare", os.devnull, os.devnull)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(run("bench-report", "--build", "/nonexistent").returncode, 2)


class Scaling(unittest.TestCase):
    def test_the_model_agrees_with_the_simulation(self):
        done = run("scaling", "--check")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_page_is_what_the_script_says(self):
        with open(os.path.join(ROOT, "docs", "SCALING.md")) as page:
            self.assertIn(run("scaling").stdout.strip(), page.read(), "run scripts/scaling --update and commit it")


class Pictures(unittest.TestCase):
    def test_they_are_well_formed_and_escape_what_they_show(self):
        for picture in (
            svg.lines("a < b & c", "x", "y", {"one": [(1, 2.0), (10, 3.0)], "two": [(1, None)]}, x_log=True, y_log=True),
            svg.lines("t", "x", "y", {"one": [(4096, 0.0), (8192, 5.0)]}, x_text=svg.size),
            svg.lines("t", "x", "y", {"one": [(7, 1.0)]}),
            svg.bars("t", "us", [("a<", [1.0, 2e4]), ("b", [None, 3.0])], ["x&y", "z"], log=True),
        ):
            self.assertTrue(tree.fromstring(picture).tag.endswith("svg"))

    def test_without_figures_there_is_none(self):
        self.assertEqual(svg.lines("t", "x", "y", {"one": []}), "")
        self.assertEqual(svg.bars("t", "y", [("a", [None])], ["x"]), "")

    def test_numbers_are_short(self):
        self.assertEqual([svg.number(v) for v in (0, 0.00123, 12, 34567, 2.5e6)], ["0", "0.00123", "12", "34.6k", "2.5M"])
        self.assertEqual([svg.size(v) for v in (64, 4096, 1 << 20)], ["64 B", "4 KiB", "1 MiB"])


if __name__ == "__main__":
    unittest.main()
