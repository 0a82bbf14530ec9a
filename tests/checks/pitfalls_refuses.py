"""scripts/check-pitfalls notices a row that is gone, a test that does not exist, and a row that names nothing."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CHANGES = {
    "row A04 is missing": (r"\| A04 \|[^\n]*\n", ""),
    "no file of the row has a test 'a_failed_copy_gives_nothing_back'": (
        "`a_failed_copy_gives_back_its_own_hold_only`", "`a_failed_copy_gives_nothing_back`"),
    "there is no tests/tier/test_nothing.c": ("tier/test_l1_map", "tier/test_nothing"),
    "row D07: names neither a test nor an issue": (r"(\| D07 \|[^|]*\|)[^\n]*\|\n", r"\1 somebody |\n"),
}


def check(root):
    return subprocess.run([sys.executable, ROOT / "scripts/check-pitfalls", "--root", root], stdout=subprocess.PIPE, text=True)


def main():
    text = (ROOT / "docs/TESTING.md").read_text()
    good = check(ROOT)
    assert good.returncode == 0, good.stdout
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "docs").mkdir()
        for name in ("tests", "scripts"):
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("corpus", "traces"))
        for expected, (pattern, new) in CHANGES.items():
            changed, count = re.subn(pattern, new, text, count=1)
            assert count == 1, pattern
            (root / "docs/TESTING.md").write_text(changed)
            result = check(root)
            assert result.returncode == 1 and expected in result.stdout, (expected, result.stdout)
    print("%d findings are made" % len(CHANGES))


main()
