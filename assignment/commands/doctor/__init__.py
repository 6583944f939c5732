"""`python grade.py --doctor`: what keeps this machine from grading, and what to do about it.

uv pins Python's packages, by pyproject.toml; what is looked at is what a pinned environment can still meet:

    environment  packages from elsewhere, and whether the simulator and the compiler work
    machine      the system, the sandbox, memory, room for temporary files
    gpu          a GPU, its driver, and what PyTorch and Triton make of them

Exit status: 0 grading works here, 2 it does not yet.
"""

from collections.abc import Iterator

from assignment import text
from assignment.commands.doctor import environment, gpu, machine
from assignment.commands.doctor.finding import FAIL, OK, MachineFinding

READY, NOT_READY = 0, 2
TOTAL = 100


def main() -> int:
    """Look at this machine, printing each finding as it is made, and last what can be graded here."""
    found = []
    for finding in findings():
        found.append(finding)
        print("\n".join(rows(finding)), flush=True)
    print(f"\n{sentence(found)}")
    return NOT_READY if any(finding.status == FAIL for finding in found) else READY


def findings() -> Iterator[MachineFinding]:
    """Yield item by item, no further than where the rest could only fail for the same cause."""
    for look in (machine.system, environment.packages, machine.temporary):
        finding = look()
        yield finding
        if finding.status == FAIL:
            return
    yield from environment.versions()
    yield environment.simulator()
    yield environment.compiler()
    yield from (machine.sandbox(), machine.memory(), gpu.gpu())


def rows(finding: MachineFinding) -> Iterator[str]:
    """Yield the lines of a finding; what others' programs said is made safe to show."""
    yield f"  {finding.status:<6}{finding.item:<12}{text.line(finding.found)}"
    if finding.advice:
        yield f"{'':8}{text.line(finding.advice)}"


def sentence(found: list[MachineFinding]) -> str:
    """Return what can be done on this machine."""
    failed = [finding.item for finding in found if finding.status == FAIL]
    todo = f"do what stands under {', '.join(failed)}, then run this again."
    if set(failed) - {gpu.ITEM}:
        return f"Nothing can be graded here yet: {todo}"
    here = points_without_a_gpu()
    if failed:
        return f"{here:g} of {TOTAL} points can be graded here, with --device cpu; for the GPU {todo}"
    if found[-1] == gpu.NONE:
        return f"{here:g} of {TOTAL} points can be graded here; the last {TOTAL - here:g} need a GPU."
    if found[-1].status != OK:
        return f"{here:g} of {TOTAL} points can be graded here; the last {TOTAL - here:g} need a GPU that works."
    return f"{TOTAL} of {TOTAL} points can be graded here, on the GPU."


def points_without_a_gpu() -> float:
    from assignment.scoring import checks  # loads tests/, which may be broken

    return sum(check.points for check in checks.without_a_gpu(checks.without_practice(checks.declared())))
