"""`python -m assignment.tests.off_linux`: grades by the ordinary Python and without what is Linux's, and compares."""

import argparse
import tempfile
from fnmatch import fnmatch
from pathlib import Path

from assignment.tests.off_linux import compared, interpreter


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m assignment.tests.off_linux", description=__doc__)
    parser.add_argument("names", nargs="*", default=["*"], help="patterns of names (default: all)")
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="every N-th of them, from the I-th on")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--list", action="store_true", help="list the names, and stop")
    asked = parser.parse_args()
    index, step = map(int, asked.shard.split("/"))
    cases = [one for one in compared.all_cases() if any(fnmatch(one.name, name) for name in asked.names)]
    cases = cases[index - 1 :: step]
    n_different = 0
    with tempfile.TemporaryDirectory() as folder:
        program = interpreter.make(Path(folder))
        for case in cases:
            found = [] if asked.list else compared.differences(case, program, asked.seed)
            n_different += bool(found)
            said = "" if asked.list else "differs  " if found else "same  "
            print("\n  ".join([said + case.name, *found]), flush=True)
    if asked.list:
        return 0
    print(f"{len(cases)} submissions, of which {n_different} differ")
    return 1 if n_different or not cases else 0


raise SystemExit(main())
