# ruff: noqa: E402 (the simulator is installed first)
"""Kernels of submission/ built of their text and run in the simulator, beside the decorated ones."""

import importlib
import json
import re
import sys
import traceback
from pathlib import Path

from assignment.simulator import install

install()

import pytest
import torch
import triton

from assignment.player.kernel_builder import Kernels
from assignment.player.source import Refused
from assignment.recorder.kernels import Described

ROOT = Path(__file__).parent / "submission"
sys.path.insert(0, str(ROOT))

decorated = importlib.import_module("cs336_kernels.kernels")

FILE = ROOT / "cs336_kernels" / "kernels.py"
SOURCES = {f"cs336_kernels/{path.name}": path.read_bytes().decode() for path in FILE.parent.glob("*.py")}
N = 20


def built(kernel, sources=SOURCES):
    described = Described(ROOT)
    number = described.number(kernel)
    kernels = Kernels(sources, triton.jit)
    kernels.add(json.loads(json.dumps(described.entries)))
    return kernels[number]


def run(kernel, **options):
    x, y = torch.linspace(-2, 2, N), torch.full((N,), float("nan"))
    kernel[(3,)](x, y, N, **options)
    return y


def agree(kernel, ours=None, **options):
    expected = run(kernel, **options)
    got = run(ours or built(kernel), **options)
    assert not expected.isnan().any()
    assert torch.equal(got, expected), (got, expected)


def raises(kernel, words, **options):
    with pytest.raises(Exception, match=words) as raised:
        run(built(kernel), **options)
    return traceback.extract_tb(raised.value.__traceback__)


def check_aliases_of_functions_and_constants():
    agree(decorated.aliases)


def check_modules_annotations_and_numbers_of_other_libraries():
    agree(decorated.modules)


def check_named_tuples_and_loops():
    agree(decorated.tuples)


def check_arithmetic_in_lists_and_conditions():
    agree(decorated.lists)


def check_a_jit_function_as_a_constexpr():
    described = Described(ROOT)
    numbers = [described.number(decorated.applied), described.number(decorated.common.tripled)]
    kernels = Kernels(SOURCES, triton.jit)
    kernels.add(described.entries)
    applied, tripled = (kernels[number] for number in numbers)
    assert torch.equal(run(applied, F=tripled), run(decorated.applied, F=decorated.common.tripled))


def check_closures():
    for factor in (2, 5):
        agree(decorated.made(factor))


def check_a_function_that_is_decorated_later():
    agree(decorated.later, BLOCK=16)


def check_a_function_of_a_class():
    agree(decorated.Methods.kernel)


def check_an_autotuned_kernel_and_its_options():
    ours = built(decorated.tuned)
    assert ours.kwargs["do_not_specialize"] == ["n"]
    agree(decorated.tuned, triton.autotune([triton.Config({"BLOCK": 8})], key=["n"])(ours))


def check_a_global_that_is_no_constexpr_is_refused_in_tritons_words():
    frames = raises(decorated.of_a_global, "Cannot access global variable DEFAULT")
    assert any(frame.filename == "cs336_kernels/kernels.py" and frame.name == "of_a_global" for frame in frames)


def check_a_fault_has_the_place_in_the_students_file():
    line = FILE.read_text(encoding="utf-8").split("# HERE")[0].count("\n") + 1
    place = f"cs336_kernels/kernels.py:{line} in out_of_bounds: tl.store"
    raises(decorated.out_of_bounds, re.escape(place), BLOCK=64)


def check_the_innermost_line_of_an_error_in_arithmetic_is_the_students():
    files = [frame.filename for frame in raises(decorated.of_none, ".")]
    assert "cs336_kernels/kernels.py" in files
    assert not any("assignment/player" in file for file in files), files


def check_a_python_function_is_refused_with_its_place():
    with pytest.raises(Refused, match=r"(?s)host.*@triton.jit.*in of_python:.*host\(x\)"):
        built(decorated.of_python)


def check_a_kernel_of_exec_or_of_another_folder_is_refused_by_the_recorder():
    for kernel in (triton.language.sum, 5):
        with pytest.raises(TypeError, match=r"@triton\.jit"):
            Described(ROOT).number(kernel)


def check_arithmetic_on_constants_is_bounded():
    for name in ("power", "shift", "product", "text", "plain_power"):
        raises(getattr(decorated, name), "too large for a kernel")
    raises(decorated.padded, "cannot format")


def main():
    results: dict[str, str | None] = {}
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            try:
                check()
                results[name] = None
            except (Exception, pytest.fail.Exception):
                results[name] = traceback.format_exc()
    print(json.dumps(results))


main()
