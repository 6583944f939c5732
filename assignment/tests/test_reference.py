"""The stubs promise what the reference keeps: the same functions, signatures and docstrings, and nothing in them."""

import ast
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from assignment.tests.graded import grade

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "assignment/reference/cs336_kernels"
STUBS = ROOT / "cs336_kernels"

SIGNATURES = {
    "weighted_sum_forward": "x, weight",
    "weighted_sum_backward": "grad_y, x, weight",
    "weighted_sum": "x, weight",
    "rmsnorm_forward": "x, weight, eps=1e-05",
    "rmsnorm_backward": "grad_y, x, weight, rstd",
    "rmsnorm": "x, weight, eps=1e-05",
    "flash_forward_pytorch": "q, k, v, is_causal=False",
    "flash_backward_pytorch": "grad_o, q, k, v, o, lse, is_causal=False",
    "flash_forward_triton": "q, k, v, is_causal=False",
    "flash_backward_triton": "grad_o, q, k, v, o, lse, is_causal=False",
    "flash_attention": "q, k, v, is_causal=False",
}
MODULES = ["weighted_sum", "rmsnorm", "flash_attention"]
N_APPLY = {"WeightedSum": 2, "RMSNorm": 3, "FlashAttention": 4}  # arguments of the autograd Functions
PUBLIC = {module: [name for name in (*SIGNATURES, *N_APPLY) if name.lower()[:5] == module[:5]] for module in MODULES}

Definition = ast.FunctionDef | ast.ClassDef


def definitions(path: Path) -> dict[str, Definition]:
    """Functions, classes and methods of a file by name, with the class before that of a method."""
    found = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, Definition):
            found[node.name] = node
            found |= {f"{node.name}.{x.name}": x for x in node.body if isinstance(x, Definition)}
    return found


def head(node: Definition) -> tuple[str, ...]:
    """What a student sees of a definition: decorators, bases or arguments and result, docstring."""
    seen = [*node.decorator_list, *(node.bases if isinstance(node, ast.ClassDef) else (node.args, node.returns))]
    return (*(ast.unparse(x) for x in seen if x is not None), ast.get_docstring(node) or "")


def bare_signature(node: Definition) -> str:
    assert isinstance(node, ast.FunctionDef)
    for argument in node.args.args:
        argument.annotation = None
    return ast.unparse(node.args)


def exported(folder: Path) -> list[str]:
    """What the package exports: what the course grades"""
    body = ast.parse((folder / "__init__.py").read_text()).body
    return next(ast.literal_eval(node.value) for node in body if isinstance(node, ast.Assign))


@pytest.mark.parametrize("folder", [REFERENCE, STUBS], ids=["reference", "stubs"])
def test_functions_have_the_signatures_of_the_handout(folder):
    """Those of them that the course grades"""
    functions = {name: node for module in MODULES for name, node in definitions(folder / f"{module}.py").items()}
    told = {name: signature for name, signature in SIGNATURES.items() if name in exported(folder)}
    assert told == {name: bare_signature(functions[name]) for name in told}
    assert told


@pytest.mark.parametrize("module", MODULES)
def test_a_stub_has_the_signatures_and_docstrings_of_the_reference(module):
    reference, stubs = definitions(REFERENCE / f"{module}.py"), definitions(STUBS / f"{module}.py")
    taught = definitions((REFERENCE / f"{module}.py").resolve().with_name("skeletons.py"))
    reference |= {name: node for name, node in taught.items() if name.startswith("_")}  # kernels that differ
    assert {name: head(node) for name, node in stubs.items()} == {name: head(reference[name]) for name in stubs}
    assert all(ast.get_docstring(stubs[name]) for name in SIGNATURES if name in stubs)
    helpers = set(reference) - set(stubs) - (set(SIGNATURES) - set(exported(STUBS)))
    assert all(name.startswith("_") for name in helpers), "only helpers may be missing from the stubs"


@pytest.mark.slow
@pytest.mark.parametrize("module", ["rmsnorm", "weighted_sum", "practice/layernorm", "practice/dropout_add_layernorm"])
def test_stubs_filled_in_as_their_chapter_says_earn_all_points(submission, module):
    """The solution with the functions of skeletons.py in place of its own: the grid that chapter and stub teach"""
    path = submission / "cs336_kernels" / f"{module}.py"
    skeletons = (REFERENCE / f"{module}.py").resolve().with_name("skeletons.py")
    ours, taught = definitions(path), definitions(skeletons)
    lines = path.read_text().splitlines()
    for name in taught:
        first = min(line.lineno for line in (ours[name], *ours[name].decorator_list)) - 1
        for number in range(first, ours[name].end_lineno or 0):
            lines[number] = ""
    path.write_text("\n".join(lines) + "\n\n\n" + skeletons.read_text())
    got = grade(submission, "--only", path.stem)
    assert len(taught) == 2
    assert got.lost() <= {"speed"}, got.out


@pytest.mark.parametrize("module", MODULES)
def test_a_stub_has_no_body_but_its_error(module):
    for name, node in definitions(STUBS / f"{module}.py").items():
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            assert [type(statement) for statement in body] == [ast.Raise], name


@pytest.mark.parametrize("module", MODULES)
def test_the_reference_imports_what_students_may_import(module):
    text = (REFERENCE / f"{module}.py").read_text()
    imports = re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE)
    assert set(imports) <= {"torch", "triton", "einops", "jaxtyping"} | sys.stdlib_module_names
    assert "make_block_ptr" not in text
    assert "is_cuda" not in text


def test_each_stub_raises_with_file_function_and_section():
    command = [sys.executable, "-m", __name__, str(STUBS.parent)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert list(said) == [f"{module}.{name}" for module, names in there().items() for name in names]
    for name, (kind, message) in said.items():
        module, function = name.split(".")
        function = module if function in N_APPLY else function
        assert kind == "NotImplementedError", name
        section = rf"handout/{module}\.md(#(for|back)ward-in-(pytorch|triton))?"
        assert re.fullmatch(rf"cs336_kernels/{module}\.py: {function}, {section}", message), name


def there() -> dict[str, list[str]]:
    """PUBLIC, without what the course leaves out"""
    off = set(SIGNATURES) - set(exported(STUBS))
    return {module: [name for name in names if name not in off] for module, names in PUBLIC.items()}


def call_stubs() -> dict[str, tuple[str, str]]:
    """What each public function and autograd Function of the package on the path raises, in a process of its own."""
    said = {}
    for module, names in there().items():
        for name in names:
            function = getattr(importlib.import_module(f"cs336_kernels.{module}"), name)
            n_arguments = SIGNATURES[name].count(",") + 1 if name in SIGNATURES else N_APPLY[name]
            try:
                getattr(function, "apply", function)(*[0] * n_arguments)
            except Exception as error:
                said[f"{module}.{name}"] = type(error).__name__, str(error)
    return said


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    print(json.dumps(call_stubs()))
