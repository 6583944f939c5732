"""What a test hears of a call that has no result."""

import _pytest.outcomes

from assignment.judge import score
from assignment.judge.replies import UNREADABLE, Failed, Fault, Raised, Reply

TOO_SMALL = (
    "tl.dot wants tiles of at least 16, padded with zeros: handout/faq.md#why-does-d--40-fail-when-32-and-64-work"
)


class SubmissionError(_pytest.outcomes.Failed):
    """The submission did something else than return tensors."""

    def __init__(self, status: str, message: str, ran: bool = True, is_fault: bool = False) -> None:
        super().__init__(message, pytrace=False)
        self.status, self.ran = status, ran
        self.is_fault = is_fault  # the simulator's, with a line


def meant_by(reply: Reply | None) -> SubmissionError:
    """Return the error for a reply that is not the one that was asked for."""
    match reply:
        case Raised(is_todo=True, text=text):
            return SubmissionError(score.TO_DO, text)
        case Raised(message=message, in_kernel=in_kernel):
            advice = f"\n  {TOO_SMALL}" if in_kernel and "Input shapes should have" in message else ""
            return SubmissionError(score.FAIL, f"it raised {message}{advice}")
        case Failed(message=message):
            return SubmissionError(score.FAIL, message)
        case Fault(message=message):
            return SubmissionError(score.FAIL, message, is_fault=True)
    return SubmissionError(score.CRASHED, UNREADABLE)
