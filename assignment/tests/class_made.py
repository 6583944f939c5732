"""A small class with results: reports by the grader's own words, of outcomes that are made up."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from assignment.classroom import results, tables
from assignment.classroom.handed_in import Handed, Person
from assignment.classroom.kept import KeptReport
from assignment.protocol.said import Places, SourceLine
from assignment.submission import Submission, UnusableSubmission
from assignment.verdict import checks, reporting, score
from assignment.verdict.case import Case
from assignment.verdict.finding import Explanation, Finding

FILE = "cs336_kernels/rmsnorm.py"
SOURCE = "".join(f"line_{i} = {i}\n" for i in range(1, 30))
MARKUP = "<script>document.title='taken'</script><img src=http://127.0.0.1:9/x onerror=alert(1)></pre>"
HINT = Explanation(
    "acc-not-rescaled",
    "Your o equals attention in which the old accumulator is not rescaled when the running maximum grows",
    "handout/flash_attention.md#online-softmax",
    "Look at what multiplies acc before you add to it.",
)
VALUES = "test_rmsnorm.py::test_forward_values"
SPEED = "test_rmsnorm.py::test_forward_speed"
FLASH = "test_flash_forward.py::test_triton_values"
DOUBT = f"f(x):\nloads x_ptr[0]\n  computed at {FILE}:12 in f: line_12 = 12"
DECLARED = checks.without_practice(checks.declared())
TIMING: Any = {
    "against": "a copy", "ratio": 0.9, "low": 0.8, "high": 1.0, "full_points_from": 0.75,
    "us": 140.0, "share_of_gpu": 0.7,
    "bytes": 2.0e8, "operations": 0, "gpu_bytes_per_s": 2e12, "gpu_operations_per_s": 4e14,
}  # fmt: skip


def submission(extra: str = "") -> Submission:
    """Return a submission of one file."""
    return Submission({FILE: (SOURCE + extra).encode()})


def report(
    of: Submission, cases: dict[str, Case] | None = None, device: str = "cpu-simulated", seed: int = 7, **more: Any
) -> Any:
    """Return the report in which all checks pass but those for which there are other cases."""
    others = {name: case if case.finding else found(case) for name, case in (cases or {}).items()}
    run = checks.without_a_gpu(DECLARED) if device == "cpu-simulated" else DECLARED
    good = Case("", score.OK)
    made = [score.CheckResult(check, (others.get(check.name, good),), 1) for check in run]
    session = reporting.Circumstances(
        command=f"uv run grade.py /class/ada --seed {seed}", seed=seed, device=device,
        sandbox="landlock", submission_sha256=of.sha256, seconds=60.0,
    )  # fmt: skip
    return {**reporting.report(session, made, []), **more}


def places_in(said: str) -> Places:
    """Return the lines that a message of a test names."""
    found = re.findall(r"^ *((?:computed |called from )?(?:at )?(\S+):(\d+)[^:\n]*)", said, re.MULTILINE)
    return tuple(SourceLine(says, path, int(line)) for says, path, line in found)


def found(case: Case) -> Case:
    """Return the case with a finding that names the lines of its message."""
    return replace(case, finding=Finding(case.status, case.message, places_in(case.message)))


def keep(folder: Path, name: str, told: KeptReport, of: Submission | None, people: tuple[Person, ...] = ()) -> Handed:
    """Keep a report in a folder of results, and make the tables anew."""
    settings = results.opened(folder, "auto", "auto", ())
    handed = Handed(name, Path(f"/class/{name}"), people=people)
    log = f"Grading /class/{name} on cpu, seed {settings.seed}\n{MARKUP}\n"
    results.Results(folder, settings).keep(handed, "key", told, log, of)
    try:
        others = [one for one in tables.form_of(folder).handed if one.name != name]
    except UnusableSubmission:
        others = []
    tables.write(folder, tables.Form((*others, handed)))
    return handed


def made(folder: Path) -> Path:
    """Return a folder of results: one all right, one wrong, one to be reviewed, one that cannot be read."""
    right, wrong = submission(), submission("wrong = 1\n")
    keep(folder, "ada", report(right), right)
    failed = Case("tile", score.FAIL, f"{MARKUP}\no: 3 of 4 elements wrong", hints=(HINT,))
    keep(folder, "bo", report(wrong, {FLASH: failed}, import_error=MARKUP), wrong, (Person(f"Bo {MARKUP}"),))
    doubted = Case("tile", score.NEEDS_REVIEW, DOUBT)
    keep(folder, "cy", report(right, {VALUES: doubted}), right, (Person("Cy", email="cy@uni.example"),))
    keep(folder, "di", results.failed(f"/class/di: cannot be read {MARKUP}"), None)
    return folder
