"""What a compiler sees of a call, from the program of its recording: the operators with data, and without."""

from collections.abc import Sequence

from assignment.judge.errors import SubmissionError
from assignment.protocol.program import Launch, OperatorCall, Program, Repeat
from assignment.verdict import score
from tests.door import Returned

WITHOUT_DATA = ", on tensors without data, as a compiler calls it"
LAUNCHED = "a kernel is launched on tensors without data, by {}\n  a fake implementation makes empty results, no more"
OTHERS = "{} called with data, {} called without: a compiler sees another call than the one that is made"
NONE = "no operator of torch.library is called"


def parts(program: Program) -> tuple[list[Returned], list[Returned] | None]:
    """Return the operators with data, and those without; None where the call came to an end before."""
    steps = list(program.steps)
    middle = next((n for n, step in enumerate(steps) if isinstance(step, Repeat)), len(steps))
    for step in steps[middle:]:
        if isinstance(step, Launch):
            raise SubmissionError(score.FAIL, LAUNCHED.format(program.lines[step.line]))
    with_data, without = (
        [_returned(program, step) for step in part if isinstance(step, OperatorCall)]
        for part in (steps[:middle], steps[middle:])
    )
    return with_data, without if middle < len(steps) else None


def _returned(program: Program, call: OperatorCall) -> Returned:
    return Returned(call.schema, call.returned, str(program.lines[call.line]))


def paired(with_data: Sequence[Returned], without: Sequence[Returned] | None) -> list[tuple[Returned, Returned]]:
    """Return each operator's two calls; raises SubmissionError where they are not calls of the same."""
    names = [", ".join(one.schema.partition("(")[0] for one in those) or "none" for those in (with_data, without or ())]
    if names[0] != names[1]:
        raise SubmissionError(score.FAIL, OTHERS.format(*names))
    if not with_data:
        raise SubmissionError(score.FAIL, NONE)
    return list(zip(with_data, without or (), strict=True))
