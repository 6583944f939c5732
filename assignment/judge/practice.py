"""Practice: operators beside the 100 points, which are graded once somebody is at work on them."""

import re

from assignment.judge import checks
from assignment.submission import Submission
from tests import operators


def chosen(selected: list[checks.Check], submission: Submission, wanted: bool | None) -> list[checks.Check]:
    """Return the checks with all of practice, with none of it (False), or with what has been begun (None)."""
    if wanted is False:
        return checks.without_practice(selected)
    return [c for c in selected if wanted or not checks.is_practice(c.problem) or has_begun(c.problem, submission)]


def has_begun(problem: str, submission: Submission) -> bool:
    """Return whether one of the operator's functions no longer raises what its stub does.

    The text is searched, not parsed: a parser can be brought to its end by the text.
    """
    operator = operators.operator_of(problem)
    text = submission.files.get(operator.file)
    said = [re.escape(f"{operator.file}: {function.name},") for function in operator.functions]
    stubs = [rf'^ *raise NotImplementedError\(\s*"{words}'.encode() for words in said]
    return text is not None and any(not re.search(stub, text, re.MULTILINE) for stub in stubs)
