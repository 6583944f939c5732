"""What is used of Triton beyond its documentation stands in simulator/triton_private.py."""

import ast

import pytest

from assignment.sandbox import stage
from assignment.tests.test_roles import STAFFS, modules

PUBLIC = ("triton", "triton.language", "triton.testing", "triton.language.extra")
HOME = stage.OURS / "simulator" / "triton_private.py"
A_STUDENTS = {*STAFFS, "staff"}  # or the staff's, whose code is a student's own
OURS = [path for path in modules(stage.OURS) if path != HOME and not A_STUDENTS & {*path.relative_to(stage.OURS).parts}]


def is_public(name: str) -> bool:
    return name in PUBLIC or name.startswith("triton.language.extra.")


@pytest.mark.parametrize("path", OURS, ids=lambda path: str(path.relative_to(stage.OURS)))
def test_private_names_are_imported_by_one_module(path):
    nodes = list(ast.walk(ast.parse(path.read_text())))
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) if not node.level}
    private = {name for name in modules if name.partition(".")[0] == "triton" and not is_public(name)}
    assert not private, f"import it in {HOME.relative_to(stage.OURS)}"
