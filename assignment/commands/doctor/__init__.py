"""`python grade.py --doctor`: what is missing on this machine before a grade, and what to do about it.

Findings are a pure function of facts:

    facts       the data; `machine` gathers it, by way of `packages` and `nvidia`; `probe` and `first_kernel` run in
                processes of their own
    finding     what is said of one item; `installed`, `resources` and `gpu` say it

Exit status: 0 grading works here, 2 it does not yet.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from assignment import text
from assignment.commands.doctor import gpu, installed, machine, resources
from assignment.commands.doctor.facts import Facts, fits
from assignment.commands.doctor.finding import FAIL, OK, WARN, Finding

STYLES = {OK: "green", WARN: "yellow", FAIL: "bold red"}
READY, NOT_READY = 0, 2
TOTAL = 100


def main(path: Path) -> int:
    """Look at this machine, and at the submission at path; print what was found."""
    with waiting():
        facts = machine.gather(path)
    findings = diagnose(facts)
    show(findings, sentence(facts, findings))
    return NOT_READY if any(finding.status == FAIL for finding in findings) else READY


def diagnose(facts: Facts) -> list[Finding]:
    """What was found, item by item; no more than that where nothing but another system, or another Python, helps."""
    system, python = installed.system(facts), installed.python(facts)
    if system.status == FAIL:
        return [system]
    folders = [resources.temporary(facts), resources.disk(facts), resources.cache(facts)]
    if not fits(facts):
        return [system, python, *folders]
    software = [system, python, *installed.packages(facts), *installed.simulator(facts), *resources.checks(facts)]
    hardware = [resources.sandbox(facts), gpu.gpu(facts), gpu.compiler(facts), resources.memory(facts)]
    return [*software, *hardware, *folders, resources.submission(facts)]


def sentence(facts: Facts, findings: list[Finding]) -> str:
    """What can be done on this machine."""
    failed = [finding.item for finding in findings if finding.status == FAIL]
    todo = f"do what stands under {', '.join(failed)}, then run this again."
    if set(failed) - {"GPU", "C compiler"}:
        return f"Nothing can be graded here yet: {todo}"
    if failed:
        return f"{facts.points:g} of {TOTAL} points can be graded here, with --device cpu; for the GPU {todo}"
    if gpu.is_usable(facts):
        return f"{facts.points + facts.speed:g} of {TOTAL} points can be graded here, on the GPU."
    needed = "a GPU that works: see above" if facts.gpu.is_there else "a GPU"
    return f"{facts.points:g} of {TOTAL} points can be graded here; the last {TOTAL - facts.points:g} need {needed}."


# The answer on the screen.


def show(findings: list[Finding], last: str) -> None:
    """Plain where rich is missing, too."""
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        for finding in findings:
            print("\n".join("".join(parts) for parts in rows(finding)))
        print(f"\n{last}")
        return
    console = Console(highlight=False, soft_wrap=True)
    for finding in findings:
        first, *others = rows(finding)
        console.print(Text.assemble((first[0], STYLES[finding.status]), first[1]))
        for other in others:
            console.print(Text("".join(other)))
    console.print(Text(f"\n{last}", "bold"))


def rows(finding: Finding) -> Iterator[tuple[str, str]]:
    """The lines of a finding, each as its status and the rest."""
    yield f"  {finding.status:<6}", f"{finding.item:<12}{text.line(finding.found)}"
    if finding.advice:
        yield "", f"{'':8}{text.line(finding.advice)}"


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """A sign of life on a terminal: PyTorch takes its seconds to load."""
    try:
        from rich.console import Console
    except ImportError:
        yield
        return
    console = Console()
    with console.status("looking at this machine") if console.is_terminal else contextlib.nullcontext():
        yield
