"""Where results come from: run by test_simulator.py in a process of its own, like simulated.py.

Each check is a way to write y = 3x as a submission would: HONEST ones leave no evidence, the others some.
"""

# mypy: disable-error-code="attr-defined"

import collections
import contextlib
import ctypes
import dataclasses
import itertools
import linecache
import runpy
import tempfile
import threading
import time
import warnings
from pathlib import Path

if __name__ == "__main__":
    from assignment.simulator import install

    install()

import numpy as np
import torch
import triton
import triton.language as tl
from torch import library

from assignment.grading import requests
from assignment.grading.requests import reachable_storages
from assignment.simulator import calls
from assignment.simulator.provenance import Provenance
from assignment.tests.data.simulated import raised, run_checks

TRACKER = Provenance(f"{__file__}")


@triton.jit
def triple_kernel(x_ptr, y_ptr, n, factor, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(y_ptr + at, factor * tl.load(x_ptr + at, mask=at < n, other=0.0), mask=at < n)


@triton.jit
def add_kernel(x_ptr, y_ptr, n, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.atomic_add(y_ptr + at, tl.load(x_ptr + at, mask=at < n, other=0.0), mask=at < n)


def tripled(x, factor=3.0):
    y = torch.empty(x.shape, dtype=torch.float32)
    triple_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), factor, SIZE=64)
    return y


def copied(x):
    return tripled(x, 1.0)


def judged(function, *inputs, name="rmsnorm_forward"):
    """What two calls of a submission's function, the first on other values, leave behind: evidence and doubts."""
    inputs = inputs or (torch.randn(4, 50),)
    values = [tensor.clone() for tensor in inputs]
    for tensor in inputs:
        tensor.mul_(-0.7)
    with calls.call(inputs, provenance=TRACKER), TRACKER.call(name, inputs):
        function(*inputs)
    before = TRACKER.record.steps
    for tensor, value in zip(inputs, values, strict=True):
        tensor.detach().copy_(value)
    with calls.call(inputs, provenance=TRACKER), TRACKER.call(name, inputs):
        results = function(*inputs)
        TRACKER.returned(results if isinstance(results, tuple) else (results,))
        TRACKER.compare(before)
    return list(TRACKER.verdicts.evidence), list(TRACKER.verdicts.doubts)


def honest(function, *inputs, name="rmsnorm_forward"):
    assert judged(function, *inputs, name=name) == ([], []), judged(function, *inputs, name=name)


def caught(function, *says, inputs=(), name="rmsnorm_forward"):
    evidence, _ = judged(function, *inputs, name=name)
    assert evidence, "no evidence"
    for text in says:
        assert any(text in line for line in evidence), f"{text!r} is not in:\n" + "\n".join(evidence)


# what PyTorch may do


def check_honest_copies_and_casts():
    honest(lambda x: tripled(x.t().contiguous().t().reshape(x.shape)).to(torch.bfloat16).float())


def check_honest_padding():
    def padded(x):
        wide = torch.nn.functional.pad(x, (0, 14))
        wider = torch.cat([wide, torch.zeros(4, 6)], dim=1)
        return tripled(wider)[:, : x.shape[1]].contiguous()

    def filled_in(x):
        wide = torch.zeros(8, 64)
        wide[: x.shape[0], : x.shape[1]] = x
        return tripled(wide)[: x.shape[0], : x.shape[1]]

    honest(padded)
    honest(filled_in)


def check_honest_scaling():
    honest(lambda x: -tripled(x * 0.25 * 1.5) / 2.0 * torch.tensor(0.5))


def check_honest_views_as_results():
    honest(lambda x: (tripled(x).t(), tripled(x)[1:, ::2], tripled(x).view(2, 100), torch.stack([tripled(x)] * 2)))


def check_honest_atomics_on_zeros():
    def added(x):
        y = torch.zeros_like(x)
        add_kernel[(4,)](x, y, x.numel(), SIZE=64)
        return y

    honest(added)


def check_honest_empty_batch():
    honest(lambda x: (x.new_zeros(7), torch.empty(0, 5)), torch.randn(0, 7), name="rmsnorm_backward")


def check_honest_partial_sums():
    def summed(grad_y, x):
        return tripled(grad_y), tripled(x).sum(0), torch.sum(tripled(x), dim=0, dtype=torch.float32), tripled(x).mean(0)

    honest(summed, torch.randn(4, 50), torch.randn(4, 50), name="rmsnorm_backward")


def check_honest_accumulation():
    def accumulated(grad_y):
        total = torch.zeros_like(grad_y)
        for _ in range(3):
            total += tripled(grad_y)
        return total

    honest(accumulated, torch.randn(4, 50), name="weighted_sum_backward")


def check_honest_delta():
    """rowsum(dO ∘ O), however it is written."""
    for delta in (
        lambda do, o: (do * o).sum(-1),
        lambda do, o: torch.sum(do.float() * o.float(), dim=-1, keepdim=True),
        lambda do, o: torch.einsum("bnd,bnd->bn", do, o),
        lambda do, o: (do.unsqueeze(-2) @ o.unsqueeze(-1)).flatten(),
        lambda do, o: torch.linalg.vecdot(do, o) * 0.125,
    ):
        for width in (16, 1):  # rows of one element need no sum
            tensors = torch.randn(2, 3, 20, width)
            honest(lambda do, o, d=delta: copied(d(do, o)), *tensors, name="flash_backward_triton")


def check_honest_tables():
    """Offsets that depend on shapes alone are constants, however they are computed."""

    def by_table(x):
        rows = torch.arange(x.shape[0]) * x.shape[1] + 1
        table = torch.stack([rows, rows - 1]).to(torch.float32).sqrt()
        copied(table)
        return tripled(x)

    honest(by_table)


workspace = torch.zeros(200)


def check_honest_workspace():
    """Memory made at import, or by an earlier call, may be used again."""

    def with_workspace(x):
        triple_kernel[(4,)](x, workspace, x.numel(), 3.0, SIZE=64)
        return copied(workspace.view(x.shape))

    for _ in range(2):
        with TRACKER:
            workspace.zero_()
        honest(with_workspace)


def check_honest_autograd():
    class Triple(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return tripled(x)

        @staticmethod
        def backward(ctx, grad_y):
            return tripled(grad_y.contiguous())

    def gradients(x):
        x.requires_grad_()
        y = Triple.apply(x.reshape(2, -1) * 0.5)
        return torch.autograd.grad(y.sum(), x)

    honest(gradients, torch.randn(4, 50), name="rmsnorm_backward")


def check_labels_are_nobodys_memory():
    """What a call leaves behind is measured: the tracker's own tensors do not count."""
    before, x, kept = reachable_storages(), torch.randn(4, 50), []

    def keeping(x):
        kept.append(tripled(x))
        return kept[0]

    judged(keeping, x)
    ours = {tensor.untyped_storage()._cdata for tensor in (x, *kept)}
    assert TRACKER.own_storages()
    assert not reachable_storages().keys() - before.keys() - ours - TRACKER.own_storages()


# what it may not


def check_computed():
    caught(lambda x: (x * 3).exp().log(), "200 of 200 elements of the result", "computed by aten::log", "followed.py")


def check_decoy():
    def decoy(x):
        tripled(x)
        return (x.double() ** 2).sqrt().float() * 3

    caught(decoy, "aten::sqrt")


def check_laundered():
    caught(lambda x: copied(torch.softmax(x, -1)), "kernel triple_kernel loads x_ptr[", "aten::_softmax")


def check_fig_leaf():
    caught(lambda x: tripled(x) @ x.t(), "aten::mm")
    caught(lambda x: x * copied(x[:, :1]), "aten::mul")


def check_returned_input():
    caught(lambda x: x.clone(), "copied from the inputs")


def check_part_of_a_result():
    def mixed(x):
        y = tripled(x)
        y[1, 2:5] = x[1, 2:5].cos()
        return y

    caught(mixed, "3 of 200 elements of the result, the first at [1, 2]", "aten::cos")


def check_in_place_and_out():
    caught(lambda x: tripled(x).mul_(0).add_(x), "aten::add_")
    caught(lambda x: torch.mul(x.sin(), 3, out=tripled(x)), "aten::sin")
    caught(lambda x: tripled(x).copy_(x.tan()), "aten::tan")
    caught(lambda x: tripled(x).index_put_((torch.tensor([0]),), x[:1].tanh()), "aten::tanh")


def check_numpy():
    def by_numpy(x):
        y = tripled(x)
        y.numpy()[:] = 3 * x.numpy() + 1e-3  # other bits than the kernel's
        return y

    def washed(x):
        y = by_numpy(x)
        return y.mul_(1.0)  # an operation that is allowed must not make it good

    caught(by_numpy, "written by neither a kernel nor an operation of PyTorch")
    caught(washed, "written by neither a kernel nor an operation of PyTorch")
    caught(lambda x: torch.from_numpy(3 * x.numpy()), "written by neither")
    caught(lambda x: copied(torch.from_numpy(3 * x.numpy())), "loads x_ptr[", "written by neither")
    caught(lambda x: copied(torch.tensor((3 * x).tolist())), "written by neither")


def check_memory_behind_pytorchs_back():
    def by_address(x):
        y = torch.empty_like(x)
        answer = np.ascontiguousarray(3 * x.numpy())
        ctypes.memmove(y.data_ptr(), answer.ctypes.data, answer.nbytes)
        return copied(y)

    def restored(x):
        before = x.numpy().copy()
        x.numpy()[:] = 3 * before
        y = copied(x)
        x.numpy()[:] = before
        return y

    caught(by_address, "written by neither")
    caught(restored, "written by neither")


def check_large_memory():
    """One element by a kernel, the rest by NumPy, in a buffer of 80 MB"""

    def large(x):
        buffer = torch.zeros(20_000_000)
        triple_kernel[(1,)](x, buffer, 1, 3.0, SIZE=16)
        buffer[: x.numel()].numpy()[:] = 3 * x.numpy().ravel() + 1e-3
        return buffer[: x.numel()].view(x.shape)

    caught(large, "written by neither")


def check_values_hidden_in_nan():
    """Fresh memory holds one kind of NaN; others could carry bits"""

    def hidden(x):
        y = torch.empty_like(x)
        bits = (x.numpy() * 1000).astype(np.int32) & 0xFFFF
        y.numpy().view(np.int32)[:] = 0x7FC00000 | bits
        return copied(y)

    caught(hidden, "written by neither")


def check_thread():
    def in_thread(x):
        found = []
        thread = threading.Thread(target=lambda: found.append(x.exp() * 3))
        thread.start()
        thread.join()
        return copied(found[0])

    caught(in_thread, "loads x_ptr[")


def check_thread_in_a_pytorch_problem():
    def in_thread(q):
        thread = threading.Thread(target=lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q))
        thread.start()
        thread.join()
        return q

    inputs = (torch.randn(2, 20, 16),)
    caught(in_thread, "scaled_dot_product_attention", inputs=inputs, name="flash_forward_pytorch")


HIDDEN = {"x": torch.zeros(0)}  # where a kernel finds what it should not


class Tricks:
    """As another module of the submission would be."""

    @staticmethod
    def answer(at):
        HIDDEN["y"].copy_(3 * HIDDEN["x"])
        return 0

    @staticmethod
    def cos(x):
        return np.cos(x.handle.data)


module = type(tl)("module")
module.tricks = Tricks


def check_replaced_operations():
    """In the usual way or beside it, and also where the replacement is gone before the call is over."""
    answer = lambda x, shifts, dims=(): 3 * x if x.is_floating_point() else x.clone()  # noqa: E731

    def replaced(x, register):
        replacement = library.Library("aten", "IMPL")
        try:
            register(replacement)
            return copied(x.roll(1))
        finally:
            replacement._destroy()

    with warnings.catch_warnings(action="ignore"):
        for register in (
            lambda replacement: replacement.impl("roll", answer, "CPU"),
            lambda replacement: replacement.m.impl("roll", "CompositeImplicitAutograd", answer),
        ):
            caught(lambda x, register=register: replaced(x, register), "was replaced: aten::roll", "followed.py")
    honest(lambda x: tripled(x.roll(1)))


@library.custom_op("followed::triple", mutates_args=())
def triple_operation(x: torch.Tensor) -> torch.Tensor:
    return tripled(x.contiguous())


@library.custom_op("followed::triple_into", mutates_args=("y",))
def triple_into_operation(x: torch.Tensor, y: torch.Tensor) -> None:
    triple_kernel[(4,)](x, y, x.numel(), 3.0, SIZE=64)


@library.custom_op("followed::answer", mutates_args=())
def answer_operation(x: torch.Tensor) -> torch.Tensor:
    return (3 * x).exp().log()


def check_operations_of_the_submissions_own():
    """What they do counts, not that they are operations."""

    def into(x):
        y = torch.empty_like(x)
        triple_into_operation(x, y)
        return y

    honest(lambda x: triple_operation(x.t()).t() + 0)
    honest(into)
    caught(answer_operation, "computed by aten::log", "in answer_operation")
    caught(lambda x: copied(answer_operation(x)), "loads x_ptr[", "computed by aten::log")


@triton.jit
def torch_inside_kernel(x_ptr, y_ptr, anew: tl.constexpr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(y_ptr + at, module.tricks.answer(anew) + tl.load(x_ptr + at))


@triton.jit
def numpy_inside_kernel(x_ptr, y_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(y_ptr + at, module.tricks.cos(tl.load(x_ptr + at)))


@triton.jit
def handle_kernel(x_ptr, y_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(x_ptr + at)
    x.handle.data = x.handle.data * 3
    tl.store(y_ptr + at, x)


def check_torch_inside_of_a_kernel():
    numbers = itertools.count()

    def hidden(x):
        HIDDEN["x"], HIDDEN["y"] = x, torch.empty_like(x)
        torch_inside_kernel[(1,)](x, torch.empty_like(x), next(numbers), SIZE=64)
        return HIDDEN["y"]

    caught(hidden, "is called inside of a kernel", "followed.py", inputs=(torch.randn(64),))


def check_numpy_inside_of_a_kernel():
    """What no compiler would take is refused."""
    x = torch.randn(64)
    assert "no function of Triton's" in str(raised(TypeError, numpy_inside_kernel[(1,)], x, torch.empty(64), SIZE=64))
    assert "does not support" in str(raised(TypeError, handle_kernel[(1,)], x, torch.empty(64), SIZE=64))


def check_a_kernel_without_source():
    """Triton compiles source; without it the simulator would run plain Python."""
    found: dict = {"tl": tl}
    exec("def kernel(y_ptr):\n    tl.store(y_ptr, 1.0)", found)
    fault = raised(ValueError, triton.jit(found["kernel"])[(1,)], torch.empty(1))
    assert "should be defined in a Python file" in str(fault)


def check_values_in_a_closure():
    def make(value):
        @triton.jit
        def closed_kernel(y_ptr, SIZE: tl.constexpr):
            tl.store(y_ptr + tl.arange(0, SIZE), value)

        return closed_kernel

    fault = raised(NameError, make(3.0)[(1,)], torch.empty(16), SIZE=16)
    assert "Cannot access global variable value" in str(fault)
    make(tl.constexpr(3.0))[(1,)](torch.empty(16), SIZE=16)


GLOBAL = tl.constexpr(1.0)


@triton.jit
def global_kernel(y_ptr, SIZE: tl.constexpr):
    tl.store(y_ptr + tl.arange(0, SIZE), GLOBAL)


def check_a_global_that_changes():
    """As on a GPU: a compiled kernel does not see it."""
    global GLOBAL
    global_kernel[(1,)](torch.empty(16), SIZE=16)
    GLOBAL = tl.constexpr(2.0)
    fault = raised(RuntimeError, global_kernel[(1,)], torch.empty(16), SIZE=16)
    assert "GLOBAL has changed since we compiled this kernel" in str(fault)


def check_honest_many_launches():
    def one_by_one(x):
        y = torch.empty_like(x)
        for i in range(x.numel()):
            triple_kernel[(1,)](x.view(-1)[i:], y.view(-1)[i:], 1, 3.0, SIZE=16)
        return y

    honest(one_by_one, torch.randn(300))


def check_numbers():
    """Results that travel as Python numbers: filled in one by one, as factors, or as arguments of launches."""

    def filled(x):
        y = torch.empty_like(x)
        for i, value in enumerate((3 * x).flatten().tolist()):
            y.view(-1)[i] = value
        return y

    def as_integers(x):
        y = torch.empty(x.numel(), dtype=torch.int32)
        for i, value in enumerate((3 * x).view(torch.int32).flatten().tolist()):
            y[i] = value
        return y.view(torch.float32)

    def padded(x):
        pieces = [torch.nn.functional.pad(torch.ones(0), (0, 1), value=v) for v in (3 * x).flatten().tolist()]
        return copied(torch.cat(pieces))

    def multiplied(x):
        return torch.cat([torch.ones(1) * value for value in (3 * x).flatten().tolist()]).view(x.shape)

    def passed(x):
        y, one = torch.empty_like(x), torch.ones(1)
        for i, value in enumerate((3 * x).flatten().tolist()):
            triple_kernel[(1,)](one, y.view(-1)[i:], 1, value, SIZE=16)
        return y

    for function in (filled, as_integers, padded, multiplied, passed):
        caught(function)


@triton.jit
def tuple_kernel(y_ptr, VALUES: tl.constexpr, SIZE: tl.constexpr):
    for i in tl.static_range(SIZE):
        tl.store(y_ptr + i, VALUES[i])


def check_numbers_in_tuples_and_closures():
    def by_tuple(x):
        y = torch.empty_like(x)
        tuple_kernel[(1,)](y, VALUES=tuple((3 * x).flatten().tolist()), SIZE=x.numel())
        return y

    def by_closure(x):
        values = tl.constexpr(tuple((3 * x).flatten().tolist()))

        @triton.jit
        def closed_kernel(y_ptr, SIZE: tl.constexpr):
            for i in tl.static_range(SIZE):
                tl.store(y_ptr + i, values[i])

        y = torch.empty_like(x)
        closed_kernel[(1,)](y, SIZE=x.numel())
        return y

    caught(by_tuple, "hands on other numbers", "200 of them differ, the first in kernel tuple_kernel")
    caught(by_closure, "hands on other numbers", "the first in kernel closed_kernel", "followed.py")


def check_places_of_constants():
    """Where ones are put tells as much as numbers do"""

    def placed(x):
        y = torch.zeros(x.numel())
        for bit in range(-6, 2):
            mask = torch.zeros(x.numel())
            for i, value in enumerate(((3 * x).abs() * 2**-bit).flatten().int().tolist()):
                mask[i] = value & 1
            y = y + mask * 2.0**bit
        return copied(y).view(x.shape)

    caught(placed, inputs=(torch.randn(4, 50),))


def check_scores_by_sums_of_products():
    """rowsum(Q ∘ rolled K), once for each key, is the matrix of scores"""

    def rolled(grad_o, q, k):
        return copied(torch.stack([(q * k.roll(i, 1)).sum(-1) for i in range(300)]))

    caught(rolled, "aten::sum", inputs=tuple(torch.randn(3, 2, 300, 16)), name="flash_backward_triton")


def check_several_constants():
    """One constant in a result may be right; several are an answer from somewhere else."""

    def signs(x):
        y = torch.ones(4)
        y[1::2] = -1.0
        return y

    caught(signs, "filled in from Python numbers")


def check_tables_of_answers():
    """A lookup by an index that was computed is computation."""

    def looked_up(x):
        steps = torch.arange(-1000, 1000) / 100
        return copied(steps[((3 * x.exp()).log() * 100).round().long().clamp(-999, 999)])

    caught(looked_up, "aten::index")


def check_sum_in_a_forward_pass():
    caught(lambda x: tripled(x).sum(-1), "summed by PyTorch")


def check_delta_elsewhere():
    """rowsum(A ∘ B) is the whole of a weighted sum, and a row of scores if one factor is repeated."""
    caught(lambda x: copied((x * x).sum(-1)), "aten::sum", name="weighted_sum_forward")

    def scores(q, k):
        left = q[:, :, None].expand(3, 20, 20, 16).contiguous()
        return copied((left * k[:, None].expand_as(left).contiguous()).sum(-1))

    caught(scores, "aten::sum", inputs=tuple(torch.randn(2, 3, 20, 16)), name="flash_backward_triton")


kept: dict[str, torch.Tensor] = {}


def check_kept_from_an_earlier_call():
    def cached(x):
        if "y" not in kept:
            kept["y"] = tripled(x)
        return kept["y"].clone()

    caught(cached, "kept from an earlier call", inputs=(torch.randn(4, 50),))


def check_doubts_keep_points():
    """Cleaning up is for staff to judge."""
    evidence, doubts = judged(lambda x: torch.nan_to_num(tripled(x)))
    assert not evidence
    assert "aten::nan_to_num" in doubts[0]


def check_honest_schedule():
    """Tables made in Python, of any size, if they are the same for all values."""

    def scheduled(x):
        table = torch.tensor(list(range(0, 64)), dtype=torch.int32)
        copied(table)
        return tripled(x) * 1.5

    honest(scheduled)
    bits = lambda x: torch.tensor((3 * x).view(torch.int32).flatten().tolist(), dtype=torch.int32)  # noqa: E731
    caught(lambda x: copied(bits(x).view(torch.float32)), "hands on other numbers")


once: dict[str, torch.Tensor] = {}


def check_honest_first_call():
    """What a call does once for all is not asked for again."""

    def prepared(x):
        if "table" not in once:
            once["table"] = torch.zeros(100, dtype=torch.int32)
            for i in range(100):
                once["table"][i] = 7 * i
        y = torch.empty_like(x)
        copied(once["table"])
        triple_kernel[(4,)](x, y, x.numel(), 3.0, SIZE=64)
        return y

    honest(prepared)


def check_one_number_of_the_values_is_a_doubt():
    evidence, doubts = judged(lambda x: tripled(x / float(x.abs().max()), 3.0))
    assert not evidence
    assert "1 of them differ, the first in aten::div" in doubts[0]


@triton.jit
def count_kernel(y_ptr, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(y_ptr + at, at.to(tl.float32) / 100 - 6)


def check_slices_of_what_a_kernel_wrote():
    """Every value that a result can have, by a kernel; which ones are taken, by PyTorch."""

    def picked(x):
        table = torch.empty(1280)
        count_kernel[(20,)](table, SIZE=64)
        wanted = ((3 * x).clamp(-6, 6) * 100 + 600).round().int().flatten().tolist()
        return torch.cat([table[i : i + 1] for i in wanted]).view(x.shape)

    caught(picked, "hands on other numbers", "aten::slice")

    table = torch.empty(1280)
    count_kernel[(20,)](table, SIZE=64)
    slices = [table[i : i + 1] for i in range(1280)]

    def picked_of_old_ones(x):
        count_kernel[(20,)](table, SIZE=64)
        wanted = ((3 * x).clamp(-6, 6) * 100 + 600).round().int().flatten().tolist()
        return torch.cat([slices[i] for i in wanted]).view(x.shape)

    caught(picked_of_old_ones, "hands on other numbers", "aten::cat")


def check_steps_for_some_values_alone():
    def positive(x):
        y, one = tripled(x), torch.ones(1)
        for i, value in enumerate(x.tolist()):
            if value > 0:
                triple_kernel[(1,)](one, y[i:], 1, 3 * value, SIZE=16)
        return y

    caught(positive, "hands on other numbers", inputs=(torch.rand(50) + 0.1,))


def check_which_tensors_are_joined():
    def joined(x):
        low, high = tripled(torch.zeros(1)), tripled(torch.ones(1))
        return torch.cat([high if value > 0 else low for value in x.flatten().tolist()]).view(x.shape)

    caught(joined, "hands on other numbers", "aten::cat")


def check_slices_of_a_table_of_constants():
    def looked_up(x):
        table = torch.arange(-600, 600) / 100
        wanted = ((3 * x).clamp(-6, 5.9) * 100 + 600).round().int().flatten().tolist()
        return copied(torch.cat([table[i : i + 1] for i in wanted])).view(x.shape)

    caught(looked_up, "hands on other numbers")


def check_a_kernel_with_the_answers_in_its_source():
    def written(x, name="answers"):
        source = "\n".join(
            ["import triton", "import triton.language as tl", "@triton.jit", f"def {name}(y_ptr):"]
            + [f"    tl.store(y_ptr + {i}, {value!r})" for i, value in enumerate((3 * x).flatten().tolist())]
        )
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "answers.py")
            path.write_text(source)
            answers = runpy.run_path(str(path))[name]
            y = torch.empty_like(x)
            linecache.getlines(str(path))
            answers[(1,)](y)
        return y

    caught(written, "hands on other numbers", "kernel answers")
    names = iter(("one", "another"))
    caught(lambda x: written(x, next(names)), "hands on other numbers", "kernel another")


class Oracle:
    """A module of the submission, whose functions give constants."""

    values: tuple = ()
    calls = 0

    @staticmethod
    def value(nonce, i):
        return Oracle.values[i]


module.oracle = Oracle


@triton.jit
def asking_kernel(y_ptr, nonce: tl.constexpr, SIZE: tl.constexpr):
    for i in tl.static_range(SIZE):
        tl.store(y_ptr + i, module.oracle.value(nonce, i))


def check_functions_of_python_that_know_the_answer():
    def asked(x):
        Oracle.values = tuple((3 * x).flatten().tolist())
        Oracle.calls += 1
        y = torch.empty_like(x)
        asking_kernel[(1,)](y, nonce=Oracle.calls, SIZE=x.numel())
        return y

    caught(asked, "hands on other numbers", "kernel asking_kernel", inputs=(torch.randn(40),))


@triton.jit
def store_kernel(y_ptr, at, value):
    tl.store(y_ptr + at, value)


@triton.jit
def tile_kernel(y_ptr, at, CONFIG: tl.constexpr):
    tl.store(y_ptr + at, CONFIG.tile)


@triton.jit
def types_kernel(y_ptr, at, BITS: tl.constexpr):
    value = 0
    for i in tl.static_range(16):
        value |= (1 if BITS[i] == tl.int32 else 0) << i
    tl.store(y_ptr + at, value)


@triton.jit
def zero():
    return 0


@triton.jit
def one():
    return 1


@triton.jit
def functions_kernel(y_ptr, at, BITS: tl.constexpr):
    value = 0
    for i in tl.static_range(16):
        value |= BITS[i]() << i
    tl.store(y_ptr + at, value)


@dataclasses.dataclass(frozen=True)
class Config:
    tile: float


class Hidden(int):
    value = 0  # what a constexpr has inside


def check_numbers_in_objects():
    """A subclass of int, the field of an object, types, and kernels as arguments"""

    def as_bits(x):
        bits = (3 * x).flatten().view(torch.int32).tolist()
        return [[(value >> i) & 1 for i in range(32)] for value in bits]

    def each(kernel, values, dtype=torch.float32):
        y = torch.empty(len(values), dtype=dtype)
        for i, value in enumerate(values):
            kernel[(1,)](y, i, value)
        return y.view(torch.float32)

    def by_subclass(x):
        values = (3 * x).flatten().view(torch.int32).tolist()
        return each(store_kernel, [Hidden(value) for value in values], torch.int32)

    def by_field(x):
        return each(tile_kernel, [Config(value) for value in (3 * x).flatten().tolist()])

    def by_types(x):
        return each(types_kernel, [tuple((tl.int64, tl.int32)[b] for b in v) for v in as_bits(x)], torch.int32)

    def by_functions(x):
        return each(functions_kernel, [tuple((zero, one)[b] for b in v) for v in as_bits(x)], torch.int32)

    for function in (by_subclass, by_field, by_types, by_functions):
        caught(function, "hands on other numbers", "the first in kernel", inputs=(torch.randn(40),))


Pair = collections.namedtuple("Pair", "low high")
SETTINGS = Pair(0.0, 0.0)


@triton.jit
def attribute_kernel(y_ptr, at):
    tl.store(y_ptr + at, module.setting)


@triton.jit
def element_kernel(y_ptr, at, i: tl.constexpr):
    tl.store(y_ptr + at, module.settings[i])


def check_numbers_that_a_kernel_reads_by_itself():
    """Attributes of modules, and what they hold"""

    def by_attribute(x):
        y = torch.empty_like(x)
        for i, module.setting in enumerate((3 * x).tolist()):
            attribute_kernel[(1,)](y, i)
        return y

    def by_element(x):
        y, module.settings = torch.empty_like(x), (3 * x).tolist()
        for i in range(len(y)):
            element_kernel[(1,)](y, i, i)
        return y

    caught(by_attribute, "hands on other numbers", "kernel attribute_kernel", inputs=(torch.randn(40),))
    caught(by_element, "hands on other numbers", "kernel element_kernel", inputs=(torch.randn(40),))


def check_constants_in_large_memory():
    def large(x):
        pieces = [torch.tensor(piece) for piece in (3 * x).reshape(-1, 10).tolist()]
        big = torch.cat([*pieces, torch.zeros(1 << 19)])
        return copied(big)[: x.numel()].view(x.shape)

    def in_storages_of_other_sizes(x):
        table = torch.tensor((3 * x).view(torch.int32).flatten().tolist(), dtype=torch.int32)
        table.untyped_storage().resize_(4 * x.numel() + 4 * int(x[0, 0] > 0))
        return copied(table).view(torch.float32).view(x.shape)

    caught(large, "hands on other numbers")
    caught(in_storages_of_other_sizes, "hands on other numbers", inputs=(torch.randn(4, 50).abs(),))


def check_which_of_two_memories():
    """Also where one address was seen in two sizes"""

    def joined(x):
        both = []
        for value in (0.0, 1.0):
            held = np.zeros(4, np.float32)
            copied(torch.from_numpy(held[:2]))
            memory = torch.from_numpy(held)
            store_kernel[(1,)](memory, 0, value)
            both.append(memory[:1])
        return torch.cat([both[int(value > 0)] for value in x.flatten().tolist()]).view(x.shape)

    caught(joined)


def check_the_order_of_many_steps():
    def in_order(x):
        y = torch.empty(x.numel())
        for i, value in enumerate(x.flatten().tolist()):
            for number in (0.0, 1.0) if value > 0 else (1.0, 0.0):
                (store_kernel if number else triple_kernel)[(1,)](y[i:], 0, number) if number else clear(y[i:])
        return y.view(x.shape)

    def clear(y):
        triple_kernel[(1,)](torch.zeros(1), y, 1, 3.0, SIZE=16)

    caught(in_order, "hands on other numbers", inputs=(torch.randn(600),))


turn = itertools.cycle((0, 1))
workspaces = [torch.empty(200), torch.empty(200)]


def check_honest_workspaces_in_turn():
    def in_turn(x):
        y = workspaces[next(turn)]
        triple_kernel[(2,)](x, y, 128, 3.0, SIZE=64)
        triple_kernel[(2,)](x.view(-1)[128:], y[128:], 72, 3.0, SIZE=64)
        return y.view(x.shape).clone()

    for _ in range(3):
        honest(in_turn)


def check_honest_operations_on_lists():
    def summed(x):
        parts = [tripled(x), tripled(x)]
        torch._foreach_add_(parts, [tripled(x), tripled(x)])
        torch._foreach_mul_(parts, 0.5)
        return tuple(parts)

    honest(summed, name="weighted_sum_backward")
    caught(lambda x: tuple(torch._foreach_exp([tripled(x)] * 2)), "_foreach_exp")


def check_honest_launches_in_threads():
    def in_threads(x):
        y = torch.empty_like(x)
        threads = [
            threading.Thread(target=lambda i=i: triple_kernel[(1,)](x[i], y[i], 50, 3.0, SIZE=64)) for i in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return y

    evidence, _ = judged(in_threads)
    assert not evidence, evidence


kept_results: dict[int, torch.Tensor] = {}


def check_a_dry_call_finds_nothing_of_earlier_ones():
    """A workspace that is kept holds the answer of the call before; it is there again afterwards."""

    def with_workspace(x):
        y = kept_results.setdefault(x.numel(), torch.empty(x.numel()))
        triple_kernel[(4,)](x, y, x.numel(), 3.0, SIZE=64)
        return y.view(x.shape).clone()

    x = torch.randn(4, 50)
    honest(with_workspace, x)
    with calls.call((x,), provenance=TRACKER) as seen, TRACKER.call("rmsnorm_forward", (x,), is_dry=True):
        seen.is_dry = True
        dry = with_workspace(x)
    assert dry.isnan().all()
    assert torch.equal(kept_results[200], 3 * x.flatten())
    honest(with_workspace, x)


def check_a_slow_rehearsal_is_given_up():
    """The call itself still has its time"""

    def slow(x):
        for _ in range(1000):
            with contextlib.suppress(Exception):
                time.sleep(0.01)
        return tripled(x)

    begin = time.monotonic()
    with contextlib.suppress(requests.TooLong), requests.stopped_after(0.1):
        slow(torch.randn(4, 50))
    assert time.monotonic() - begin < 5
    with requests.stopped_after(0.05):
        pass
    time.sleep(0.1)  # nothing is left to go off


# problems of PyTorch's


def check_pytorch_problems():
    attention = torch.nn.functional.scaled_dot_product_attention
    q = torch.randn(2, 20, 16)
    assert judged(lambda q: torch.softmax(q @ q.mT, -1) @ q, q, name="flash_forward_pytorch") == ([], [])
    caught(lambda q: attention(q, q, q), "scaled_dot_product_attention", inputs=(q,), name="flash_forward_pytorch")
    caught(lambda q: attention(*[q[None]] * 3), "fused", inputs=(q,), name="flash_backward_pytorch")
    caught(tripled, "kernel triple_kernel is launched", inputs=(q,), name="flash_forward_pytorch")
    caught(lambda q: torch.from_numpy(q.numpy() * 3), "Tensor.numpy", inputs=(q,), name="flash_forward_pytorch")


if __name__ == "__main__":
    run_checks(globals())
