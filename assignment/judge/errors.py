"""What a test hears of a call that has no result."""

from assignment.judge import plainly
from assignment.judge.replies import UNREADABLE, Broken, Failed, Fault, Raised, Reply, SaysBroken
from assignment.protocol.said import Said
from assignment.pytest_private import TestFailed
from assignment.verdict import finding, score
from assignment.verdict.finding import Finding

SAYS_BROKEN = "the process that ran this submission says that it failed itself"  # nobody else has seen it
ASK = "If nothing in your code explains that, show it to the staff."


class SubmissionError(TestFailed):
    """The submission did something else than return tensors."""

    staff = ""  # what to tell the staff beside it

    def __init__(self, status: str, found: str | Said | Finding, ran: bool = True) -> None:
        if not isinstance(found, Finding):
            found = Finding(finding.OTHER, str(found), found.places if isinstance(found, Said) else ())
        super().__init__(found.says, pytrace=False)
        self.status, self.finding, self.ran = status, found, ran


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
        case Raised(types=types, message=message, places=places):
            said, first = f"it raised {message}{plainly.advice(message)}", next(iter(types), "")
            return SubmissionError(score.FAIL, Finding(finding.RAISED, said, places, first))
        case Failed(message, kind, places=places, file=file, why=why):
            return SubmissionError(score.FAIL, Finding(kind, message, places, file=file, why=why))
        case Fault(message, kind, places):
            return SubmissionError(score.FAIL, Finding(kind, message, places))
    return SubmissionError(score.CRASHED, UNREADABLE)
