"""Practice: problems whose points are in no sum, which are graded where somebody asks for them."""

import re
from collections.abc import Sequence

from assignment.submission import Submission
from assignment.verdict import checks
from tests import operators


def checks_to_grade(
    selected: list[checks.Check], submission: Submission, named: Sequence[str], wanted: bool
) -> list[checks.Check]:
    """Return the checks to grade: those that are named; without names no practice, or, if wanted, what has begun."""
    if named:
        return selected
    practised = begun(submission) if wanted else []
    return [c for c in selected if not checks.is_practice(c.problem) or c.problem in practised]


def told(submission: Submission, wanted: bool) -> list[str]:
    """Return a line with the command that grades what has begun, unless this grade does."""
    ungraded = [] if wanted else begun(submission)
    return [f"Practice is graded by its name: uv run grade.py --only {' '.join(ungraded)}"] if ungraded else []


def begun(submission: Submission) -> list[str]:
    """Return the problems of practice that somebody is at work on."""
    return [name for name in checks.problems() if checks.is_practice(name) and has_begun(name, submission)]


def has_begun(problem: str, submission: Submission) -> bool:
    """Return whether one of the operator's functions no longer raises what its stub does.

    The text is searched, not parsed: a parser can be brought to its end by the text.
    """
    operator = operators.operator_of(problem)
    text = submission.files.get(operator.file)
    said = [re.escape(f"{operator.file}: {function.name},") for function in operator.functions]
    stubs = [rf'^ *raise NotImplementedError\(\s*"{words}'.encode() for words in said]
    return text is not None and any(not re.search(stub, text, re.MULTILINE) for stub in stubs)
