"""Submissions graded by the ordinary Python and by one without what is Linux's: their reports differ in times alone."""

import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assignment.bank.corpus import BUG, VARIANT, entries
from assignment.submission import Submission, read
from assignment.tests.graded import REFERENCE, ROOT

OF_TIME = {"seconds"}
RUNG = ("--sandbox", "rlimits")  # the one that both have
PRINTED = re.compile(r"\n +\| +printed: .*|\n +printed: .*")  # the stack of a crash, down to its start, which differs
HANGS = ("while True:\n        pass", "import time\n    time.sleep(1000)")
ENDS = ("import os\n    os.abort()", "import os\n    os._exit(0)", "import ctypes\n    ctypes.string_at(0)")
# with one job, for of several the case that is told first is that of the faster judge
ONE = ("--jobs", "1", "--only", "test_weighted_sum.py::test_forward_values")
TIMEOUT_S = 900


@dataclass(frozen=True)
class Graded:
    """A submission and the options with which it is graded."""

    name: str
    files: dict[str, bytes]
    options: tuple[str, ...] = ()
    watched: tuple[dict[str, bytes], ...] = field(default=())  # what is saved one after the other


def all_cases() -> Iterator[Graded]:
    reference, stubs = read(REFERENCE).files, read(ROOT).files
    yield Graded("reference", reference)
    yield Graded("reference, three jobs", reference, ("--jobs", "3", "--only", "rmsnorm"))
    yield Graded("reference, one job", reference, ("--jobs", "1", "--only", "weighted_sum"))
    yield Graded("stubs", stubs)
    for kind, body in [*(("hangs", code) for code in HANGS), *(("ends", code) for code in ENDS)]:
        yield Graded(f"{kind}: {body.split()[-1]}", with_first_line(reference, body), ONE)
    yield Graded("ends at import", {**reference, "cs336_kernels/__init__.py": b"import os\nos._exit(3)"}, ONE)
    yield Graded("cannot be imported", {**reference, "cs336_kernels/__init__.py": b"1 / 0"}, ONE)
    broken = with_first_line(reference, "return x.sum(-1)")
    yield Graded("watched", stubs, ("--watch", "--only", "weighted_sum"), (broken, reference))
    yield Graded("next, watched", stubs, ("--next", "--watch", "--only", "weighted_sum"), (broken, reference))
    for entry in entries():
        if entry.kind in (BUG, VARIANT):
            yield Graded(entry.name, dict(entry.submission.files), ("--only", *(entry.problems or ())))


def with_first_line(files: dict[str, bytes], body: str) -> dict[str, bytes]:
    """Return files in which a function begins with these lines."""
    name = "cs336_kernels/weighted_sum.py"
    head = r"(def weighted_sum_forward\((?:.|\n)*?\) -> .*:\n)"
    text, n = re.subn(head, lambda found: f"{found[1]}    {body}\n", files[name].decode(), count=1)
    assert n == 1
    return {**files, name: text.encode()}


def differences(one: Graded, program: Path, seed: int) -> list[str]:
    """Return what the reports of both have unlike, by its place; or the lines that are shown."""
    by = watched if one.watched else report
    return list(unlike(by(one, Path(sys.executable), seed), by(one, program, seed)))


def report(one: Graded, python: Path, seed: int) -> Any:
    """Return the report of a grade without times."""
    with tempfile.TemporaryDirectory() as folder:
        stage(one.files, Path(folder, "work"))
        to = Path(folder, "report.json")
        command = [
            str(python),
            "grade.py",
            f"{folder}/work",
            "--seed",
            str(seed),
            *one.options,
            *RUNG,
            "--json",
            str(to),
        ]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S)
        said = to.read_text() if to.exists() else json.dumps(done.stdout + done.stderr)
        return timeless(json.loads(said.replace(folder, "FOLDER")))


def timeless(value: object) -> object:
    match value:
        case dict():
            return {key: timeless(one) for key, one in value.items() if key not in OF_TIME}
        case list():
            return [timeless(one) for one in value]
        case str():
            return PRINTED.sub("", value)
    return value


def unlike(usual: object, other: object, at: str = "") -> Iterator[str]:
    if isinstance(usual, dict) and isinstance(other, dict):
        for key in usual.keys() | other.keys():
            yield from unlike(usual.get(key), other.get(key), f"{at}.{key}")
    elif isinstance(usual, list) and isinstance(other, list) and len(usual) == len(other):
        for i, pair in enumerate(zip(usual, other, strict=True)):
            yield from unlike(*pair, f"{at}[{i}]")
    elif usual != other:
        yield f"{at}: {usual!r} is {other!r} there"


def watched(one: Graded, python: Path, seed: int) -> list[str]:
    """Return the verdicts that --watch shows, after each save in an order of their own."""
    with tempfile.TemporaryDirectory() as folder:
        work, shown = Path(folder, "work"), Path(folder, "shown.txt")
        stage(one.files, work)
        command = [str(python), "grade.py", str(work), "--seed", str(seed), *one.options, *RUNG]
        with shown.open("w") as out:
            process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out)
        try:
            for n, files in enumerate((*one.watched, None), 1):
                wait_for(lambda n=n: shown.read_text().count("\nWatching:") == n or process.poll() is not None)
                if files:
                    stage(files, work)
        finally:
            process.terminate()
            process.wait()
        assert process.returncode == -signal.SIGTERM or process.returncode == 128 + signal.SIGTERM, shown.read_text()
        parts = shown.read_text().split("\nWatching:")
        return [
            line for part in parts for line in sorted(part.splitlines()) if re.match(r"  (ok|FAIL|to do) |After", line)
        ]


def wait_for(is_so) -> None:
    until = time.monotonic() + TIMEOUT_S
    while not is_so():
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.2)


def stage(files: dict[str, bytes], folder: Path) -> None:
    Submission(files).stage(folder)
