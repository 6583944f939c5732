"""The reference keeps what the specification cannot afford to test, or tests only from outside.

Values, shapes and dtypes are tested by `tests/`, which grades the reference like any submission. Here the reference
runs in the simulator in a process of its own, this file being its program.
"""

import contextlib
import functools
import importlib
import json
import operator
import sys
import tempfile
import traceback
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

ROOT = Path(__file__).parents[2]


def far(shape, strides):
    """A tensor whose elements lie far apart in a sparse file: what is not written takes no memory."""
    n_elements = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    with tempfile.NamedTemporaryFile() as file:
        file.truncate(2 * n_elements)
        storage = torch.from_file(file.name, shared=True, size=n_elements, dtype=torch.float16)
    return storage.as_strided(shape, strides).copy_(torch.randn(shape))


def assert_same(function, tensors, near, **options):
    """Far tensors give the bits that contiguous copies of them give."""
    for got, expected in zip(function(*tensors, **options), function(*near, **options), strict=True):
        assert torch.equal(got, expected)


def check_far_rows(kernels):
    weight, grad_y, rstd = torch.randn(3).half(), torch.randn(5).half(), torch.rand(5)
    far_weight = far((3,), (2**30 + 8,)).copy_(weight)
    for x in (far((5, 3), (2**29 + 8, 1)), far((5, 3), (1, 2**30 + 8))):
        near = x.contiguous()
        assert_same(kernels.weighted_sum_backward, (grad_y, x, far_weight), (grad_y, near, weight))
        assert_same(lambda *args: [kernels.weighted_sum_forward(*args)], (x, far_weight), (near, weight))
        assert_same(kernels.rmsnorm_forward, (x, far_weight), (near, weight))
        assert_same(kernels.rmsnorm_backward, (x, x, far_weight, rstd), (near, near, weight, rstd))


def check_far_attention(kernels):
    lse = torch.full((3, 5), 2.0)
    for strides in ((2**30 + 8, 4, 1), (20, 2**29 + 8, 1), (20, 1, 2**30 + 8)):
        x = far((3, 5, 3), strides)
        near = x.contiguous()
        assert_same(kernels.flash_forward_triton, [x] * 3, [near] * 3, is_causal=True)
        assert_same(kernels.flash_backward_triton, [x] * 5 + [lse], [near] * 5 + [lse], is_causal=True)


def check_wide_rows(kernels):
    x, weight, grad_y = (torch.randn(shape, dtype=torch.float64) for shape in ((3, 20_000), (20_000,), (3, 20_000)))
    x.requires_grad_(), weight.requires_grad_()
    rstd = (x.square().mean(dim=-1) + 0.1).rsqrt()
    y = x * rstd[:, None] * weight
    y.backward(grad_y)
    inputs = [t.detach().float() for t in (grad_y, x, weight, rstd)]
    got = [*kernels.rmsnorm_forward(*inputs[1:3], eps=0.1), *kernels.rmsnorm_backward(*inputs)]
    for result, expected in zip(got, (y, rstd, x.grad, weight.grad), strict=True):
        torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=1e-5)

    grad_x, grad_weight = kernels.weighted_sum_backward(inputs[0][:, 0], inputs[1], inputs[2])
    torch.testing.assert_close(grad_x.double(), grad_y[:, :1] * weight, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(grad_weight.double(), grad_y[:, 0] @ x, rtol=1e-5, atol=1e-5)
    expected = x @ weight
    torch.testing.assert_close(kernels.weighted_sum_forward(*inputs[1:3]).double(), expected, rtol=1e-4, atol=1e-3)


class Refuse:
    def __getitem__(self, grid):
        raise AssertionError(f"launched on {grid}")


def launches_refused():
    """A context in which no kernel of the reference can be launched."""
    stack = contextlib.ExitStack()
    for name in ("weighted_sum", "rmsnorm", "flash_attention"):
        module = sys.modules[f"cs336_kernels.{name}"]
        for kernel in [kernel for kernel in vars(module) if kernel.endswith("_kernel")]:
            stack.enter_context(mock.patch.object(module, kernel, Refuse()))
    return stack


def check_empty_batches(kernels):
    x, weight, y, q = torch.empty(2, 0, 7), torch.ones(7), torch.empty(2, 0), torch.empty(0, 4, 5, 7)
    with launches_refused():
        results = {
            (2, 0): [kernels.weighted_sum_forward(x, weight), kernels.weighted_sum(x, weight)],
            (2, 0, 7): [*kernels.rmsnorm_forward(x, weight)[:1], kernels.rmsnorm(x, weight)],
            (0, 4, 5, 7): [kernels.flash_attention(q, q, q)],
        }
        for grad_x, grad_weight in (
            kernels.weighted_sum_backward(y, x, weight),
            kernels.rmsnorm_backward(x, x, weight, y),
        ):
            results[2, 0, 7].append(grad_x)
            assert torch.equal(grad_weight, torch.zeros(7))
        for forward, backward in (
            (kernels.flash_forward_pytorch, kernels.flash_backward_pytorch),
            (kernels.flash_forward_triton, kernels.flash_backward_triton),
        ):
            o, lse = forward(q, q, q)
            assert lse.shape == (0, 4, 5)
            results[0, 4, 5, 7] += [o, *backward(q, q, q, q, o, lse)]
    for shape, tensors in results.items():
        assert [t.shape for t in tensors] == [shape] * len(tensors)


def check_mistakes(kernels):
    x, weight, y = torch.ones(2, 3), torch.ones(3), torch.ones(2)
    wrong_x = [  # (x, weight)
        (x, torch.ones(4)),
        (x, torch.ones(3, 1)),
        (x, torch.ones(1)),
        (x, weight.half()),
        (x.double(), weight.double()),
        (x.int(), weight.int()),
        (torch.tensor(1.0), weight),
        (torch.ones(2, 0), torch.ones(0)),
    ]
    calls: list[tuple] = [
        (function, args) for args in wrong_x for function in (kernels.weighted_sum_forward, kernels.rmsnorm)
    ]
    calls += [(kernels.weighted_sum_backward, (grad_y, x, weight)) for grad_y in (x, torch.ones(1), y.half())]
    calls += [(kernels.weighted_sum_backward, (y, *args)) for args in wrong_x]
    calls += [(kernels.rmsnorm_backward, (args[0], *args, y)) for args in wrong_x]
    for grad_y, rstd in ((y, y), (x.half(), y), (x, x), (x, y.half()), (x, torch.ones(1))):
        calls.append((kernels.rmsnorm_backward, (grad_y, x, weight, rstd)))

    q, k, v, lse = torch.ones(2, 5, 8), torch.ones(2, 6, 8), torch.ones(2, 6, 8), torch.ones(2, 5)
    wrong_q = [  # (q, k, v)
        (q[..., :7], k, v),
        (q, k, v[..., :7]),
        (q[:1], k, v),
        (q[0], k, v),
        (q, k, v[:, :5]),
        (q, k[:, :5], v),
        (q.half(), k, v),
        (q, k, v.bfloat16()),
        (q.double(), k.double(), v.double()),
        (q[..., :0], k[..., :0], v[..., :0]),
        (q[:, :0], k, v),
        (q, k[:, :0], v[:, :0]),
        (q[0, 0], k[0, 0], v[0, 0]),
        tuple(torch.ones(1, 2, 257) for _ in "qkv"),
    ]
    for kind in ("pytorch", "triton"):
        forward, backward = getattr(kernels, f"flash_forward_{kind}"), getattr(kernels, f"flash_backward_{kind}")
        calls += [(forward, args) for args in wrong_q] + [(backward, (q, *args, q, lse)) for args in wrong_q]
        for grad_o, o, wrong in (
            (k, q, lse),
            (q.half(), q, lse),
            (q, k, lse),
            (q, q.half(), lse),
            (q, q, q),
            (q, q, lse.half()),
        ):
            calls.append((backward, (grad_o, q, k, v, o, wrong)))
    with launches_refused():
        for function, args in calls:
            with pytest.raises(ValueError, match=r"expected .*, got "):
                function(*args)


def check_unmergeable_batch(kernels):
    qkv = torch.randn(2, 9, 3, 4, 5)  # (batch, n, 3, heads, d), as one projection gives it
    q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))
    near = [t.contiguous() for t in (q, k, v)]
    assert_same(kernels.flash_forward_triton, (q, k, v), near)
    o, lse = kernels.flash_forward_triton(*near)
    assert_same(kernels.flash_backward_triton, (v, q, k, v, o, lse), (near[2], *near, o, lse))
    x, weight = qkv.transpose(0, 1)[..., 0], qkv[0, 0, 0, :, 0]
    assert_same(kernels.rmsnorm_forward, (x, weight), (x.contiguous(), weight.contiguous()))
    assert_same(kernels.rmsnorm_backward, (x, x, weight, x[..., 0]), [x.contiguous()] * 2 + [weight, x[..., 0]])


class Allocations(TorchDispatchMode):
    """Collects the storages of all tensors that operators return inside: what they allocate, and their inputs."""

    _should_skip_dynamo = bool  # False: what torch.compile skips loads it

    def __init__(self):
        super().__init__()
        self.storages = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            storage = result.untyped_storage()  # kept, so that its address is not given out again
            self.storages[storage.data_ptr()] = storage
        return result


def check_no_copies(kernels):
    """Beside the results, only what the algorithms need is allocated: partial sums and D, all of them small here."""
    x, weight, y, q = torch.randn(300, 8), torch.randn(8), torch.randn(300), torch.randn(2, 3, 70, 8)
    lse = torch.randn(2, 3, 70)
    for function, args, n_large in (
        (kernels.weighted_sum_forward, (x, weight), 0),
        (kernels.weighted_sum_backward, (y, x, weight), 1),
        (kernels.rmsnorm_forward, (x, weight), 1),
        (kernels.rmsnorm_backward, (x, x, weight, y), 1),
        (kernels.flash_forward_triton, (q, q, q), 1),
        (kernels.flash_backward_triton, (q, q, q, q, q, lse), 3),
    ):
        with Allocations() as seen:
            function(*args)
        addresses = seen.storages.keys() - {tensor.untyped_storage().data_ptr() for tensor in args}
        large = [address for address in addresses if seen.storages[address].nbytes() >= x.nbytes]
        assert len(large) == n_large, function


def check_saved(kernels):
    saved = []

    def pack(tensor):
        saved.append(tensor.numel())
        return tensor

    q, k, v = (torch.randn(2, n, 8, requires_grad=True) for n in (70, 50, 50))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        o = kernels.flash_attention(q, k, v, is_causal=True)
        kernels.flash_forward_pytorch(q, k, v)
    assert sum(saved) == 2 * q.numel() + 2 * k.numel() + q.numel() // 8, "q, o, k, v and lse"
    all_three = torch.autograd.grad(o.sum(), [q, k, v], retain_graph=True)
    assert torch.equal(torch.autograd.grad(o.sum(), [k])[0], all_three[1])


CHECKS = {
    "offsets past 2**31 elements: weighted sum and RMSNorm": check_far_rows,
    "offsets past 2**31 elements: attention": check_far_attention,
    "rows of 20,000": check_wide_rows,
    "empty batches launch nothing": check_empty_batches,
    "mistakes raise before any launch": check_mistakes,
    "batch dimensions that no single stride walks over": check_unmergeable_batch,
    "contiguous inputs are not copied": check_no_copies,
    "backward keeps nothing of n_queries × n_keys": check_saved,
}


def run_checks() -> dict[str, str]:
    """The traceback of each check, empty if it passed."""
    sys.path[:0] = [str(ROOT / "assignment/reference"), str(ROOT)]
    from assignment.simulator import install

    install()

    # of the modules: the package exports what the course grades
    names = ("weighted_sum", "rmsnorm", "flash_attention")
    modules = [importlib.import_module(f"cs336_kernels.{name}") for name in names]
    kernels = SimpleNamespace(**functools.reduce(operator.or_, map(vars, modules)))
    failures = dict.fromkeys(CHECKS, "")
    for claim, check in CHECKS.items():
        try:
            check(kernels)
        except BaseException:  # pytest.raises fails with one
            failures[claim] = traceback.format_exc()
    return failures


@pytest.fixture(scope="module")
def failures() -> dict[str, str]:
    from assignment.tests.forked import python  # not where this file is the program

    done = python(__file__, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("claim", CHECKS)
def test_reference_in_the_simulator(failures, claim):
    assert not failures[claim], failures[claim]


if __name__ == "__main__":
    print(json.dumps(run_checks()))
