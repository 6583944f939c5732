"""Practice: operators beside the 100 points, which are graded once somebody is at work on them."""

import ast

from assignment.judge import checks
from assignment.submission import Submission
from tests import operators


def chosen(selected: list[checks.Check], submission: Submission, is_asked: bool) -> list[checks.Check]:
    """Return the checks without those of practice that nobody has begun or asked for."""
    return [c for c in selected if is_asked or not checks.is_practice(c.problem) or has_begun(c.problem, submission)]


def has_begun(problem: str, submission: Submission) -> bool:
    """Whether one of the operator's functions is more than its stub."""
    operator = operators.operator_of(problem)
    try:
        tree = ast.parse(submission.files.get(operator.file, b""))
    except (SyntaxError, ValueError):
        return True
    names = {function.name for function in operator.functions}
    written = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names)
    return any(not _is_stub(node) for node in written)


def _is_stub(node: ast.FunctionDef) -> bool:
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return len(body) == 1 and isinstance(body[0], ast.Raise) and "NotImplementedError" in ast.unparse(body[0])
