"""What is used of Triton beyond its documentation stands in simulator/triton_private.py."""

import ast

import pytest
import triton

from assignment.sandbox import stage
from assignment.simulator import triton_private
from assignment.tests import upgrade
from assignment.tests.forked import python
from assignment.tests.test_roles import STAFFS, modules

PUBLIC = ("triton", "triton.language", "triton.testing", "triton.language.extra")
HOME = stage.OURS / "simulator" / "triton_private.py"
OURS = [path for path in modules(stage.OURS) if path != HOME and not STAFFS & {*path.relative_to(stage.OURS).parts}]


def is_public(name: str) -> bool:
    return name in PUBLIC or name.startswith("triton.language.extra.")


@pytest.mark.parametrize("path", OURS, ids=lambda path: str(path.relative_to(stage.OURS)))
def test_private_names_are_imported_by_one_module(path):
    nodes = list(ast.walk(ast.parse(path.read_text())))
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) if not node.level}
    private = {name for name in modules if name.partition(".")[0] == "triton" and not is_public(name)}
    assert not private, f"import it in {HOME.relative_to(stage.OURS)}"


def test_nothing_is_to_be_done_for_the_installed_triton():
    """All that is taken is there, as listed, and every member of tl has an answer."""
    done = python("-m", "assignment.tests.upgrade", cwd=stage.OURS.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": nothing\n") == 5
    assert any(triton.__version__.startswith(version) for version in triton_private.CHECKED), "add it to CHECKED"


def test_what_another_version_has_is_told():
    """Parameters by version; what is missing by its name."""
    older, newer = (upgrade.known(upgrade.SIGNATURES, version) for version in ((3, 8), (3, 9)))
    assert older["InterpreterBuilder.create_load"] == "ptr _0 _1 is_volatile"
    assert newer["InterpreterBuilder.create_load"] == "ptr cache_policy is_volatile"
    assert {"InterpreterBuilder.get_cache_policy"} <= newer.keys() - older.keys()
    told = upgrade.changed(triton_private, (3, 9) if triton_private.VERSION < (3, 9) else (3, 8))
    assert len(told) >= 5
    assert any(line.startswith("InterpreterBuilder.create_masked_store(ptrs value mask") for line in told)
    assert upgrade.missing() == []
    assert not upgrade._is_there("triton.runtime.interpreter", "no_such_name")
