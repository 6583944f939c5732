"""What a test hears of a call that has no result."""

from assignment.judge.replies import UNREADABLE, Broken, Failed, Fault, Raised, Reply, SaysBroken
from assignment.protocol.said import Places
from assignment.pytest_private import TestFailed
from assignment.verdict import finding, score

TOO_SMALL = (
    "tl.dot wants tiles of at least 16, padded with zeros: handout/faq.md#why-does-d--40-fail-when-32-and-64-work"
)

SAYS_BROKEN = "the process that ran this submission says that it failed itself"  # nobody else has seen it
ASK = "If nothing in your code explains that, show it to the staff."


class SubmissionError(TestFailed):
    """The submission did something else than return tensors."""

    staff = ""  # what to tell the staff beside it

    def __init__(
        self,
        status: str,
        message: str,
        ran: bool = True,
        kind: str = finding.OTHER,
        error: str = "",
        places: Places = (),
    ) -> None:
        super().__init__(message, pytrace=False)
        self.status, self.ran, self.kind, self.error, self.places = status, ran, kind, error, places


class GraderError(Exception):
    """A process of ours that never has the submission failed: no fault of the submission's."""


def meant_by(reply: Reply | None) -> SubmissionError | GraderError:
    """Return the error for a reply that is not the one that was asked for."""
    match reply:
        case Broken(message=message):
            return GraderError(message)
        case SaysBroken(message=message):
            error = SubmissionError(score.CRASHED, f"{SAYS_BROKEN}:\n{message}\n{ASK}")
            error.staff = f"{SAYS_BROKEN}: {message.splitlines()[-1] if message else ''}"
            return error
        case Raised(is_todo=True, text=text):
            return SubmissionError(score.TO_DO, text)
        case Raised(types=types, message=message, in_kernel=in_kernel, places=places):
            advice = f"\n  {TOO_SMALL}" if in_kernel and "Input shapes should have" in message else ""
            said, first = f"it raised {message}{advice}", next(iter(types), "")
            return SubmissionError(score.FAIL, said, kind=finding.RAISED, error=first, places=places)
        case Failed(message=message, kind=kind, places=at) | Fault(message=message, kind=kind, places=at):
            return SubmissionError(score.FAIL, message, kind=kind, places=at)
    return SubmissionError(score.CRASHED, UNREADABLE)
