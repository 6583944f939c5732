"""What is used of Triton beyond its documentation stands in simulator/triton_private.py."""

import ast

import pytest
import triton

from assignment.sandbox import stage
from assignment.simulator import libtriton, triton_private
from assignment.tests import standing_in, upgrade
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
    assert done.stdout.count(": nothing\n") == 6
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


# The stand-in for its compiled part.


@pytest.mark.parametrize("seed", range(3))
def test_the_stand_in_agrees_with_the_compiled_part(seed):
    assert standing_in.differences(seed=seed) == []


WRONG = {
    "a number": ("INT32", range(-(2**31), 2**31 - 1), "native_specialize_impl"),
    "a value of the environment": ("ONES", ("1", "on", "true", "y"), "getenv_bool"),
    "a factor": ("SCALE_FACTORS", (16, 32, 64), "ir.deduce_scale_factor"),
    "a member": ("ir", libtriton.part("ir", CACHE_MODIFIER=libtriton.enumeration("CACHE_MODIFIER", "NONE CA")), "ir."),
    "a constant": ("gsan_testing", libtriton.part("gsan_testing", PER_DEVICE_STATE_STRIDE_BYTES=1), "gsan_testing.PER"),
}


@pytest.mark.parametrize(("name", "value", "told"), WRONG.values(), ids=WRONG)
def test_what_the_stand_in_has_otherwise_is_told(monkeypatch, name, value, told):
    changed = {**vars(getattr(libtriton, name)), **vars(value)} if isinstance(value, libtriton.LibraryModule) else None
    monkeypatch.setattr(libtriton, name, libtriton.part(name, **changed) if changed else value)
    assert [line for line in standing_in.differences() if line.startswith(told)]


@pytest.mark.parametrize("name", ["create", "ir.no_such_name", "gluon_ir.layout_to_gluon", "no_such_part"])
def test_unknown_names_of_the_stand_in_raise(name):
    *parts, last = name.split(".")
    module = libtriton
    for part in parts:
        module = getattr(module, part)
    with pytest.raises(AttributeError, match=rf"triton\._C\.libtriton\.{name} is in Triton's compiled part.*Linux"):
        getattr(module, last)


def test_what_is_the_compilers_raises_where_it_is_used():
    made: type[libtriton.OfCompiler]
    for made in (libtriton.ir.builder, libtriton.make_tensordesc_args):
        with pytest.raises(libtriton.NeedsCompiler, match=f"^{made.__name__} is in Triton's compiled part"):
            made()


def test_another_version_has_no_stand_in(monkeypatch):
    monkeypatch.setattr(triton, "__version__", "3.8.0")
    with pytest.raises(ImportError, match=r"expected Triton 3\.9\.0 where its compiled part is missing, got 3\.8\.0"):
        libtriton.stand_in()
