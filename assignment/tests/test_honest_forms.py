"""Honest forms of what leans on the language's open ends: right under twenty draws, last bits moved in each call.

Each runs in a process of its own, this file being its program: the simulator changes what `triton` is.
"""

import importlib
import json
import sys
from pathlib import Path

import pytest

from assignment.tests.forked import python

ROOT = Path(__file__).parents[2]
DRAWS = range(20)
OF_SOFTMAX, OF_SUMS = ("softmax::test_forward_values",), ("weighted_sum::test_forward_values",)
OF_ATTENTION = "flash_forward::test_triton_values", "flash_forward::test_triton_outliers"
FORMS: dict[str, dict[str, tuple[str, ...]]] = {  # the variants that have a form, and the checks of values that see it
    "Welford": {
        "layernorm_welford": ("layernorm::test_forward_values",),
        "dropout_add_layernorm_welford": ("dropout_add_layernorm::test_forward_values",),
    },
    "pairs of maximum and sum": {"softmax_pairs_reduced": OF_SOFTMAX, "softmax_pairs_scanned": OF_SOFTMAX},
    "argmax with ties": {"softmax_any_winner": OF_SOFTMAX, "softmax_first_winner": OF_SOFTMAX},
    "lazy rescaling": {"forward_lazy_rows": OF_ATTENTION, "forward_lazy_tiles": OF_ATTENTION},
    "until the error is small": {
        "softmax_newton": OF_SOFTMAX,
        "rmsnorm_newton": ("rmsnorm::test_forward_values",),
    },
    "top-k": {"softmax_sorted_parts": OF_SOFTMAX, "softmax_largest_apart": OF_SOFTMAX},
    "recurrences": {"weighted_sum_scan": OF_SUMS, "softmax_pairs_scanned": OF_SOFTMAX},
    "exp by a polynomial": {"softmax_exp_by_floor": OF_SOFTMAX, "softmax_exp_by_rounding": OF_SOFTMAX},
    "libraries' hints": {"weighted_sum_static_range": OF_SUMS, "matmul_library_hints": ("matmul::test_values",)},
}
CHECKS = {name: checks for form in FORMS.values() for name, checks in form.items()}


def run_checks(name: str, folder: Path) -> list[str]:
    """Have a variant judged in the simulator, a case of each check for each draw; return what was found wrong."""
    sys.path[:0] = [str(folder), str(ROOT)]
    from assignment.simulator import install

    install()
    from assignment.bank.corpus import entries

    (entry,) = [entry for entry in entries() if entry.name == f"variants/{name}"]
    for path, content in entry.submission.files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return [wrong for check in CHECKS[name] for draw in DRAWS for wrong in judged(check, draw)]


def judged(check: str, draw: int) -> list[str]:
    """Return what is wrong with a case of a check, last bits moved, or said of it."""
    import torch

    from assignment.simulator.calls import Call
    from assignment.simulator.draws import MOVED_OF
    from tests import operators
    from tests.compare import worst_margin

    said = []

    def judge(function, *tensors, expected, **options):
        file = Path(operators.operator_of(function).file).with_suffix("")
        own = getattr(importlib.import_module(".".join(file.parts)), function)
        with Call(inputs=tensors, seed=draw * MOVED_OF) as call:
            results = own(*tensors, **options)
        assert call.draws.moves
        said.extend(call.warnings)
        worst_margin(results, expected())

    cases = cases_of(check)
    test, case = cases[draw % len(cases)]
    try:
        test(judge, None, torch.Generator().manual_seed(draw), 0, case)
    except Exception as error:
        said.append(f"{check}, draw {draw}: {error}")
    return said


def cases_of(check: str) -> list[tuple]:
    """Return the test of a check with each of its cases, but those that have to be recorded."""
    from tests.families import Rounds

    file, name = check.split("::")
    (path,) = (ROOT / "tests").glob(f"*/test_{file}.py")
    test = getattr(importlib.import_module(f"tests.{path.parent.name}.{path.stem}"), name)
    (mark,) = [mark for mark in test.pytestmark if mark.name == "parametrize"]
    return [(test, case) for case in mark.args[1] if not isinstance(case.shape, Rounds)]


def test_there_are_two_of_each():
    assert {form: len(variants) for form, variants in FORMS.items() if len(variants) < 2} == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
def test_is_right_under_each_draw(tmp_path, name):
    done = python("-W", "error", "-m", __spec__.name, name, tmp_path, cwd=ROOT, timeout=280)
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == []


if __name__ == "__main__":
    print(json.dumps(run_checks(sys.argv[1], Path(sys.argv[2]))))
