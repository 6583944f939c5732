"""The processor time of grades is that of all their processes, and two checkouts are compared by pairs."""

import re
import subprocess
import sys

import pytest

from assignment.bank.run import cpu_time
from assignment.digest import ROOT

ORPHANED = """
import os, sys, time
if os.fork() == 0:
    if os.fork() == 0:
        while time.process_time() < 0.5:
            pass
    os._exit(0)
os.wait()
"""
MEASURE = f"""
import sys
from pathlib import Path
import pytest

from assignment.bank.run import cpu_time
cpu_time.here.adopt_orphans()
print(cpu_time.cpu_seconds([sys.executable, "-c", {ORPHANED!r}], Path("."), {{}}))
"""

SPENDS = """
import os, sys, time
with open({1!r}, "a") as turns:
    print(os.path.basename(os.getcwd()), os.path.basename(os.environ["XDG_CACHE_HOME"]), *sys.argv, file=turns)
while time.process_time() < {0}:
    pass
"""


def test_what_a_process_leaves_behind_counts():
    found = float(subprocess.check_output([sys.executable, "-c", MEASURE], cwd=ROOT))
    assert 0.5 <= found < 2


def test_neighbours_are_divided():
    """Where all is twice as slow for a while, the ratio stays"""
    assert cpu_time.described([10.0, 20.0], [20.0, 40.0])[-1] == "ratio  0.500 (0.500 to 0.500), of 2 pairs"


@pytest.mark.slow
def test_two_checkouts_grade_in_turn(tmp_path):
    """One that does nothing but spend time stands in for the grader"""
    folders = [tmp_path / "here", tmp_path / "other"]
    for folder, seconds in zip(folders, (0.3, 0.6), strict=True):
        folder.mkdir()
        (folder / "grade.py").write_text(SPENDS.format(seconds, str(tmp_path / "turns")))
    here, other = map(repr, map(str, folders))
    code = f"from pathlib import Path\nfrom assignment.bank.run import cpu_time\ncpu_time.ROOT = Path({here})\n"
    code += f"cpu_time.main(Path({other}), '.', ['rmsnorm'], 1, '7', None)"
    printed = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True)
    turns = [line.split() for line in (tmp_path / "turns").read_text().splitlines()]
    assert [folder for folder, *_ in turns] == ["here", "other", "here", "other", "other", "here"]
    assert {(folder, cache) for folder, cache, *_ in turns} == {("here", "here"), ("other", "other")}
    assert all(said[-5:] == [".", "--seed", "7", "--only", "rmsnorm"] for said in turns)
    found = re.search(r"^ratio  ([\d.]+) \(.*\), of 2 pairs$", printed, re.MULTILINE)
    assert found
    assert 0.3 < float(found[1]) < 0.8
