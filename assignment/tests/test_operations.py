"""The operations that programs may name: what they write to, what they take, and that none leaves its memory."""

import functools
import os
import subprocess
import sys
from typing import Any

import pytest
import torch

from assignment.player import misuse, operations
from assignment.tests.graded import REFERENCE

ROOT = REFERENCE.parents[1]


def found(name: str) -> Any:
    return operations.find(name)


@pytest.mark.parametrize(
    "name", ["aten::sort.Tensor", "aten::add.t", "aten::add_.t", "aten::sum.int", "aten::index.list_Tensor"]
)
def test_what_only_torchscript_has_is_no_operation(name):
    assert operations.find(name) is None


def test_outputs_in_a_list_are_written_to():
    func, y = found("aten::unbind_copy.int_out"), torch.zeros(4)
    assert misuse.written_by(func, [torch.ones(1, 4)], {"out": [y]}) == [y]
    with pytest.raises(ValueError, match="given none to write to"):
        misuse.written_by(func, [torch.ones(0, 4)], {"out": []})


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "wrong"),
    [
        ("aten::new_zeros.", [torch.ones(1), [3]], {"layout": 3}, "layout"),
        ("aten::new_zeros.", [torch.ones(1), [3]], {"pin_memory": True}, "pin_memory"),
        ("aten::_to_copy.", [torch.ones(1)], {"dtype": 99}, "dtype"),
        ("aten::roll.", [torch.ones(3), [torch.ones(())]], {}, "shifts"),
        ("aten::_to_copy.", [torch.ones(1)], {"dtype": torch.float16, "layout": None}, ""),
    ],
)
def test_arguments_are_of_the_sort_that_is_named(name, args, kwargs, wrong):
    assert misuse.misplaced(found(name), args, kwargs) == wrong


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("aten::repeat_interleave.Tensor", [torch.tensor([2, -1])], {}),
        ("aten::repeat_interleave.Tensor", [torch.tensor([2, 1])], {"output_size": 9}),
        ("aten::repeat_interleave.self_Tensor", [torch.ones(4), torch.tensor(1 << 62)], {}),
        ("aten::segment_reduce.", [torch.ones(4), "sum"], {"lengths": torch.tensor([9]), "unsafe": True}),
        ("aten::segment_reduce.", [torch.ones(4), "sum"], {"offsets": torch.tensor([0, 9])}),
        ("aten::_log_softmax_backward_data.", [torch.ones(4, 4), torch.ones(4), 0, torch.float32], {}),
    ],
)
def test_places_are_looked_at_where_pytorch_does_not(name, args, kwargs):
    assert misuse.out_of_range(found(name), args, kwargs)


def test_places_that_are_right_are_taken():
    repeat, segment = found("aten::repeat_interleave.Tensor"), found("aten::segment_reduce.")
    assert not misuse.out_of_range(repeat, [torch.tensor([2, 0])], {"output_size": 2})
    assert not misuse.out_of_range(segment, [torch.ones(4), "sum"], {"lengths": torch.tensor([3, 1])})


@pytest.mark.slow
def test_no_operation_leaves_its_memory():
    """A quarter of a minute of hostile shapes, strides, types and values; an hour by the command"""
    command = [sys.executable, "-m", "assignment.bank", "hostile_operations", "--seconds", "15"]
    ran = subprocess.run(
        [*command, "--seed", str(os.getpid())], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.slow
def test_an_operation_that_leaves_its_memory_is_seen():
    code = (
        "import torch; from assignment.bank.run import hostile_operations as h; "
        "print(h.run(torch.ops.aten.embedding_dense_backward.default, 0, 300))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "SIG" in ran.stdout


X, PLACES = torch.arange(12.0).view(3, 4), torch.tensor([2, 0, 1])
OVERLAPS = {  # an operation, its arguments, and the one that lies where it writes
    "itself": ("mul_.Tensor", [X, 2.0], {}, ""),
    "an operand": ("add.out", [X, X.clone()], {"out": X}, ""),
    "both operands": ("mul.out", [X, X], {"out": X}, ""),
    "beside each other": ("copy_.default", [X[:, ::2], X[:, 1::2]], {}, ""),
    "rows of one matrix": ("copy_.default", [X[0], X[2]], {}, ""),
    "itself again": ("copy_.default", [X, X], {}, ""),
    "one row on": ("copy_.default", [X[1:], X[:-1]], {}, "src"),
    "transposed": ("copy_.default", [X[:, :3], X[:, :3].T], {}, "src"),
    "seen many times": ("copy_.default", [X, X[:1].expand(3, 4)], {}, "src"),
    "scaled one place on": ("mul.out", [X.view(-1)[:-1], 2.0], {"out": X.view(-1)[1:]}, "self"),
    "what chooses": ("index_select.out", [X.long().view(-1), 0, PLACES], {"out": PLACES}, "index"),
    "a condition": ("where.self_out", [X > 1, X > 2, X > 3], {}, ""),
}  # fmt: skip


@pytest.mark.parametrize(("name", "args", "kwargs", "shared"), OVERLAPS.values(), ids=OVERLAPS)
def test_what_writes_where_it_reads_elsewhere_is_found(name, args, kwargs, shared):
    operation: Any = functools.reduce(getattr, name.split("."), torch.ops.aten)
    if name == "where.self_out":
        kwargs, shared = {"out": args[0]}, "condition"
    assert misuse.overlapping(operation, args, kwargs) == shared
