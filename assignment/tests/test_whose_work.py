"""Whose work a result is: what a player says of small submissions, recorded on decoys and played on these inputs."""

import pytest
import torch

from assignment.judge.replies import Fault, Ok

pytestmark = pytest.mark.long_file

RNG = torch.Generator().manual_seed(5)
X = torch.randn(4, 50, generator=RNG)
PAIRS = tuple(torch.randn(2, 2, 3, 20, 16, generator=RNG))
THIN = tuple(torch.randn(2, 2, 3, 20, 1, generator=RNG))
FORWARD, BACKWARD, FLASH = "rmsnorm_forward", "rmsnorm_backward", "flash_backward_triton"
ADD = """
@triton.jit
def _add(x_ptr, y_ptr, n, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.atomic_add(y_ptr + at, tl.load(x_ptr + at, mask=at < n, other=0.0), mask=at < n)

"""


def replied(at, code, *inputs, name=FORWARD, before=ADD, **more):
    """What is said of a function with these lines, and its results."""
    arguments = ", ".join("xyzuvw"[: len(inputs)])
    at.take(f"{before}def {name}({arguments}):\n" + "".join(f"    {line}\n" for line in code.split("; ")))
    return at.ask(name, *inputs, **more)


def judged(at, code, *inputs, name=FORWARD):
    """Evidence and doubts about a function with these lines, and its results."""
    reply, results = replied(at, code, *inputs, name=name)
    assert isinstance(reply, Ok), reply
    return tuple(map(str, reply.evidence)), tuple(map(str, reply.doubts)), results


def assert_for_staff(at, code, *inputs, name=FORWARD, words="aten::"):
    """There is no evidence, and a doubt."""
    evidence, doubts, _ = judged(at, code, *inputs, name=name)
    assert evidence == ()
    assert words in doubts[0]


# what PyTorch may do

FREE = {
    "a launch": "return copied(x)",
    "copies and casts": "return copied(x.t().contiguous().t().reshape(x.shape)).to(torch.bfloat16).float()",
    "padding": "return copied(torch.nn.functional.pad(x, (0, 14)))[:, :50].contiguous()",
    "joining": "return copied(torch.cat([x, torch.zeros(4, 6, device=x.device)], dim=1))[:, :50]",
    "filling in": "wide = x.new_zeros(8, 64); wide[:4, :50] = x; return copied(wide)[:4, :50]",
    "scaling": "return -copied(x * 0.25 * 1.5) / 2.0 * 0.5",
    "scaling by a constant": "return copied(x) * torch.tensor(0.5)",
    "views as results": "return copied(x).t(), copied(x)[1:, ::2], copied(x).view(2, 100)",
    "atomics on zeros": "y = torch.zeros_like(x); _add[(4,)](x, y, x.numel(), 64); return y",
    "an empty result": "return x.new_zeros(0, 7), copied(x)",
    "constant fills": "return x.new_zeros(7), torch.full_like(x, 3.0), torch.full_like(x, float('nan'))",
    "indexing by constants": "return copied(x)[torch.arange(3, device=x.device)], copied(x[[2, 0]])",
    "flips and rolls": "return copied(x.flip(0)), copied(x).roll(1, 0)",
    "a table of shapes": "t = torch.arange(4, device=x.device).float().sqrt() * 50; copied(t); return copied(x)",
    "a table of numbers": "t = torch.tensor(list(range(64)), device=x.device); copied(t); return copied(x)",
    "one by one": "y = torch.empty_like(x); [_copy[(1,)](x[i], y[i], 50, 64) for i in range(4)]; return y",
    "in place": "y = copied(x); y.mul_(2).neg_(); return y",
    "over lists": "y = copied(x); torch._foreach_mul_([y], 2.0); torch._foreach_neg_([y]); return y",
    "zeros over lists": "y = torch.empty_like(x); torch._foreach_zero_([y]); return copied(x), y",
    "a copy by out": "y = torch.empty_like(x); y.copy_(copied(x)); return y",
    "a launch in a thread": (
        "import threading; y = torch.empty_like(x); "
        "t = threading.Thread(target=lambda: _copy[(4,)](x, y, 200, 64)); t.start(); t.join(); return y"
    ),
}
ONES = "ones = x.new_ones(4); "
SUMS = {  # the spellings of a sum over partial results, of four rows each
    "sum": "return copied(x).sum(0), torch.sum(copied(x), dim=0, dtype=torch.float32)",
    "mean": "return copied(x).mean(0) * 4",
    "nansum": "return copied(x).nansum(0)",
    "sum_to_size": "return copied(x).sum_to_size(1, 50)",
    "add": "t = torch.zeros_like(x); t += copied(x); return t + copied(x)",
    "add of halves": "p = copied(x); return torch.add(p[:2].sum(0), p[2:].sum(0))",
    "sub": "p = copied(x); return p[0] - (-p[1])",
    "Python's sum": "return sum(copied(x))",
    "functools.reduce": "import functools; return functools.reduce(torch.add, copied(x).unbind())",
    "stack": "return torch.stack(copied(x).unbind()).sum(0)",
    "chunks": "return torch.stack([part.sum(0) for part in copied(x).chunk(2)]).sum(0)",
    "cumsum": "return copied(x).cumsum(0)[-1]",
    "index_add": "i = torch.tensor([0, 1] * 2, device=x.device); return x.new_zeros(2, 50).index_add_(0, i, copied(x))",
    "index_put": (
        "i = torch.tensor([0, 0, 1, 1], device=x.device); "
        "return x.new_zeros(2, 50).index_put_((i,), copied(x), accumulate=True)"
    ),
    "scatter_add": (
        "i = torch.zeros(4, 50, dtype=torch.int64, device=x.device); "
        "return x.new_zeros(1, 50).scatter_add(0, i, copied(x))"
    ),
    "scatter_reduce": (
        "i = torch.zeros(4, 50, dtype=torch.int64, device=x.device); "
        "return x.new_zeros(1, 50).scatter_reduce(0, i, copied(x), 'sum')"
    ),
    "segment_reduce": "return torch.segment_reduce(copied(x), 'sum', lengths=torch.tensor([3, 1], device=x.device))",
    "lerp": "p = copied(x); return torch.lerp(p[0], p[1], 0.5) * 2",
    "a matmul with ones": "return x.new_ones(1, 4) @ copied(x)",
    "ones @": ONES + "return ones @ copied(x)",
    "@ ones": ONES + "return copied(x).mT @ ones",
    "mv": ONES + "return torch.mv(copied(x).t(), ones)",
    "dot": ONES + "return copied(x)[:, 0].dot(ones)",
    "vdot": ONES + "return torch.vdot(ones, copied(x)[:, 0])",
    "inner": ONES + "return torch.inner(ones, copied(x).t())",
    "einsum": ONES + "return torch.einsum('pd->d', copied(x)), torch.einsum('p,pd->d', ones, copied(x))",
    "tensordot": ONES + "return torch.tensordot(ones, copied(x), 1)",
    "vecdot": ONES + "return torch.linalg.vecdot(copied(x), ones[:, None], dim=0)",
    "multi_dot": ONES + "return torch.linalg.multi_dot([ones[None], copied(x)])",
    "linear": ONES + "return torch.nn.functional.linear(ones, copied(x).t())",
    "addmm": ONES + "p = copied(x); return torch.addmm(p[:1], ones[None, 1:], p[1:])",
    "addmv": ONES + "p = copied(x); return torch.addmv(p[0], p[1:].t(), ones[1:])",
    "addbmm": ONES + "return torch.addbmm(x.new_zeros(1, 50), ones[None, None], copied(x)[None])",
    "baddbmm": ONES + "return torch.baddbmm(x.new_zeros(1, 1, 50), ones[None, None], copied(x)[None])",
    "addcmul": ONES + "p = copied(x); return torch.addcmul(p[0], p[1], ones[:1])",
    "addcdiv": ONES + "p = copied(x); return torch.addcdiv(p[0], p[1], ones[:1])",
}
CLEANED = "copied(x).nan_to_num()"
DELTAS = {
    "sum": "return copied((x * y).sum(-1))",
    "in float32": "return copied(torch.sum(x.float() * y.float(), dim=-1, keepdim=True))",
    "einsum": "return copied(torch.einsum('abnd,abnd->abn', x, y))",
    "matmul": "return copied((x.unsqueeze(-2) @ y.unsqueeze(-1)).flatten())",
    "vecdot": "return copied(torch.linalg.vecdot(x, y) * 0.125)",
    "scaled before": "return copied((x * y * 0.125).sum(-1))",
}


@pytest.mark.parametrize("code", FREE.values(), ids=FREE)
def test_what_pytorch_may_always_do(at, code):
    assert judged(at, code, X)[:2] == ((), ())


@pytest.mark.parametrize("code", SUMS.values(), ids=SUMS)
def test_in_a_backward_pass_it_may_sum_what_kernels_stored(at, code):
    assert judged(at, code, X, name=BACKWARD)[:2] == ((), ())
    assert "summed by PyTorch" in judged(at, code, X, name=FORWARD)[0][0]


@pytest.mark.parametrize("code", [code.replace("copied(x)", "x.clone()") for code in SUMS.values()], ids=SUMS)
def test_it_may_not_sum_what_none_has_stored(at, code):
    assert "computed by aten::" in judged(at, code, X, name=BACKWARD)[0][0]


@pytest.mark.slow
@pytest.mark.parametrize("code", [code.replace("copied(x)", "x.clamp(-9, 9)") for code in SUMS.values()], ids=SUMS)
def test_nor_what_was_only_cleaned_up(at, code):
    assert "computed by aten::" in judged(at, code, X, name=BACKWARD)[0][0]


@pytest.mark.slow
@pytest.mark.parametrize("code", [code.replace("copied(x)", CLEANED) for code in SUMS.values()], ids=SUMS)
def test_a_sum_of_what_was_cleaned_up_is_for_staff_to_judge(at, code):
    assert_for_staff(at, code, X, name=BACKWARD, words="computed by aten::")
    evidence, _, _ = judged(at, code, X, name=FORWARD)
    assert evidence, "a sum in a forward pass"


PRODUCTS = {
    "sum": "return (copied(x) * y).sum(0)",
    "vecdot": "return torch.linalg.vecdot(copied(x), y, dim=0)",
    "matmul": "return copied(x).mT @ y",
    "einsum": "return torch.einsum('pd,pd->d', copied(x), y)",
    "addcmul": "return torch.addcmul(copied(x), copied(x), y)",
    "addcdiv": "return torch.addcdiv(copied(x), copied(x), y)",
    "addcdiv of ones": "return torch.addcdiv(copied(x), torch.ones_like(x), copied(x))",
    "lerp": "return torch.lerp(copied(x), copied(x), copied(y))",
    "baddbmm": "return torch.baddbmm(x.new_zeros(1, 50, 50), copied(x).mT[None], y[None])",
    "a product that was cleaned up": "return (copied(x) * y).clamp(-9, 9)",
    "the sum of one": "return (copied(x) * y).nan_to_num().sum(0)",
    "in place": "return copied(x).mul_(y).nan_to_num_()",
}


@pytest.mark.parametrize("clean", ["", ".nan_to_num()"])
@pytest.mark.parametrize("code", PRODUCTS.values(), ids=PRODUCTS)
def test_products_of_data_are_no_sums(at, code, clean):
    """Whatever is cleaned up before"""
    code = code.replace("copied(x)", f"copied(x){clean}")
    evidence, _, _ = judged(at, code, X, X + 1, name=BACKWARD)
    assert "computed by aten::" in evidence[0] or "multiplied by PyTorch" in evidence[0]


@pytest.mark.parametrize("inputs", [PAIRS, THIN], ids=["rows of 16", "rows of one"])
@pytest.mark.parametrize("code", DELTAS.values(), ids=DELTAS)
def test_in_the_flash_backward_it_may_sum_rows_of_a_product(at, code, inputs):
    assert judged(at, code, *inputs, name=FLASH)[:2] == ((), ())


def test_values_are_those_of_these_inputs(at):
    _, _, (result,) = judged(at, "return copied(x * 2).t().contiguous() + 0", X)
    assert torch.equal(result, (X * 2).t())


AUTOGRAD = """
class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return copied(x)

    @staticmethod
    def backward(ctx, grad):
        return copied(grad.contiguous())

def rmsnorm(x):
    return Same.apply(x.reshape(2, -1) * 0.5)
"""


def test_autograd_may_scale_and_reshape(at):
    at.take(AUTOGRAD)
    more = {"wrt": [0], "times": 1, "has_grad": False, "interleaved": False}
    reply, (grad,) = at.ask("rmsnorm", X, kind="gradients", **more)
    assert (reply.evidence, reply.doubts) == ((), ())
    assert torch.equal(grad, torch.full_like(X, 0.5))


def test_workspaces_may_be_used_again(at):
    at.take("kept = torch.zeros(200, device='cuda')\ndef rmsnorm_forward(x):\n"
            "    _copy[(4,)](x, kept, 200, 64)\n    return copied(kept.view(x.shape))\n")  # fmt: skip
    for inputs in (X, X * 2, X + 1):
        reply, (result,) = at.ask(FORWARD, inputs)
        assert (reply.evidence, reply.doubts) == ((), ())
        assert torch.equal(result, inputs)


# what it may not

CAUGHT = {
    "computing": ("return (x * 3).exp().log()", ["200 of 200 elements of the result", "computed by aten::log"]),
    "a kernel beside it": ("copied(x); return (x.double() ** 2).sqrt().float() * 3", ["aten::sqrt"]),
    "laundering": ("return copied(torch.softmax(x, -1))", ["kernel _copy loads x_ptr[", "aten::_softmax"]),
    "a fig leaf": ("return copied(x) @ x.t()", ["aten::mm"]),
    "a product of both": ("return x * copied(x)[:, :1]", ["aten::mul"]),
    "an input": ("return x.clone()", ["copied from the inputs"]),
    "a part": (
        "y = copied(x); y[1, 2:5] = x[1, 2:5].cos(); return y",
        ["3 of 200 elements of the result, the first at [1, 2]", "aten::cos"],
    ),
    "in place": ("y = copied(x); y.exp_(); return y", ["aten::exp_"]),
    "by out": ("y = copied(x); torch.exp(x, out=y); return y", ["aten::exp"]),
    "a sum in a forward pass": ("return copied(x).sum(-1)", ["summed by PyTorch"]),
    "rowsum in a forward pass": ("return copied((x * x).sum(-1))", ["aten::sum"]),
    "several constants": ("y = torch.ones_like(x); y[:, 1::2] = -1.0; return y", ["filled in from Python numbers"]),
    "a lookup by what was computed": (
        "t = torch.arange(-1000, 1000, device=x.device) / 100; return copied(t[(x.exp() * 9).long().clamp(0, 999)])",
        ["aten::index"],
    ),
    "a mask that was computed, of inputs": ("return copied(x.where(x.exp() > 1, -x))", ["aten::exp"]),
    "lists": ("return tuple(torch._foreach_exp([copied(x)] * 2))", ["exp"]),
    "memory behind the tape's back": (
        "import numpy; y = numpy.zeros(400_000, numpy.float32); t = torch.from_numpy(y).cuda()[:200]; return copied(t)",
        ["changed by neither a kernel nor an operation of PyTorch"],
    ),
    "filled through a stride of 0": (
        "y = x.new_empty(201); y[:200] = x.exp().flatten(); y[200:].expand(201).zero_(); return copied(y[:200])",
        ["aten::exp"],
    ),
    "written where elements share an address": (
        "y = copied(x)[:, :1].expand(4, 50); i = torch.tensor([0], device=x.device); "
        "y.index_put_((i,), x[:1].exp()); return y.contiguous()",
        ["computed by aten::exp"],
    ),
    "selected into elements that overlap": (
        "r, k, z = x.sum(-1), copied(x)[:, 0] * 0, copied(x.new_zeros(4, 5)); "
        "a = torch.stack([torch.stack([k, r], -1), torch.stack([k, k], -1)], 1); "
        "torch.index_select(a, 2, torch.arange(2, device=x.device), out=z.as_strided((4, 2, 2), (5, 2, 2))); return z",
        ["changed by neither"],
    ),
    "put into elements that overlap": (
        "r, z, i = x.sum(-1), copied(x.new_zeros(4, 5)), torch.arange(4, device=x.device); "
        "z.as_strided((4, 2, 2), (5, 2, 2)).index_put_((i, i * 0, i * 0 + 1), r); return z",
        ["changed by neither"],
    ),
    "the larger of what was computed and nothing": (
        "return torch.maximum(torch.empty(4, device=x.device), x.sum(-1))", ["aten::maximum of what was computed by"]
    ),
    "a list of outputs": ("y = copied(x); torch.unbind_copy(x.exp()[None], out=[y]); return y", ["aten::exp"]),
    "one of two in a list": (
        "y, z = copied(x), copied(x); torch.split_copy(torch.cat([copied(x), x.exp()]), 4, out=[y, z]); return z",
        ["aten::exp"],
    ),
    "rounded as complex numbers": (
        "y = copied(x).double(); z = torch.view_as_complex(torch.stack([y, y * 0], -1)); "
        "return copied(z.to(torch.int32))",
        ["aten::_to_copy"],
    ),
    "a bool as a number": ("return copied((copied(x).int().to(torch.int8) != 0).float())", ["aten::"]),
    "an integer as a float, by adding nothing": ("return copied(torch.ones_like(x).int()) + 0.0", ["aten::add"]),
    "a byte of a number, moved": (
        "f = x.new_empty(64); f.view(torch.int8)[::4] = 1; return copied(f.clone())", ["changed by neither a kernel"]
    ),
    "scan": ("return copied(x.cumsum(0))", ["aten::cumsum"]),
}  # fmt: skip


@pytest.mark.parametrize(("code", "words"), CAUGHT.values(), ids=CAUGHT)
def test_what_it_may_not_do_is_evidence(at, code, words):
    evidence, _, _ = judged(at, code, X)
    assert evidence, "no evidence"
    for word in words:
        assert any(word in text for text in evidence), evidence
    if "aten::" in evidence[0]:
        assert "at cs336_kernels/weighted_sum.py:" in evidence[0]


FORMS = {  # an operation and its arguments: of how many forms PyTorch's work is told, in a forward and a backward pass
    "scaling": ("mul", "(3.0,)", 0, 0),
    "dividing": ("div", "(3.0,)", 0, 0),
    "a product": ("mul", "(x,)", 4, 4),
    "a sum": ("add", "(copied(x),)", 4, 0),
    "a sum of products": ("addcmul", "(copied(x), x)", 4, 4),
    "mixing": ("lerp", "(copied(x), 0.5)", 4, 0),
    "computing": ("exp", "()", 4, 4),
    "squashing": ("sigmoid", "()", 4, 4),
}


@pytest.mark.parametrize(("name", "more", "forward", "backward"), FORMS.values(), ids=FORMS)
def test_all_forms_of_an_operation_are_one_work(at, name, more, forward, backward):
    """By itself, in place, to an output, and over lists"""
    code = (
        f"more, t, o, e = {more}, copied(x), copied(x), copied(x); t.{name}_(*more); torch.{name}(o, *more, out=o); "
        f"torch._foreach_{name}_([e], *[[m] if isinstance(m, torch.Tensor) else m for m in more]); "
        f"return torch.{name}(copied(x), *more), t, o, e"
    )
    assert len(judged(at, code, X)[0]) == forward
    assert len(judged(at, code, X, name=BACKWARD)[0]) == backward


def test_to_have_been_an_argument_is_not_enough(at):
    """Only what a launch stored is its work, element by element"""
    code = "b = x.clone(); _copy[(1,)](b[0], b[0], 50, 64); return copied(b[:1]), b.sum(0)"
    evidence, _, _ = judged(at, code, X, name=BACKWARD)
    assert any("aten::sum" in text for text in evidence)


STEER = """
@triton.jit
def _steer(f_ptr, y_ptr):
    tl.store(y_ptr, tl.where(tl.load(f_ptr).to(tl.float32) > 0.5, 1.0, 2.0))

"""
UNWRITTEN = {  # memory that nobody wrote, and values that depend on it
    "a sum": "f = x.new_empty(64).sum() + 1.0",
    "some of a sum": "p = x.new_empty(4, 64); p[:, :50] = copied(x); f = p.sum(0)[60]",
    "a matmul": "p = x.new_empty(4, 64); p[:, :50] = copied(x); f = (x.new_ones(1, 4) @ p)[:, 60]",
    "nan_to_num": "f = x.new_empty(64).nan_to_num(42.0)",
    "clamp": "f = x.new_empty(64).clamp(1.0, 2.0)",
    "a comparison": "f = (x.new_empty(64) == 1.5).to(torch.bool)",
    "chosen by one": "f = torch.where(x.new_empty(64) > 0, 1.0, 2.0)",
    "all of a comparison": "f = (x.new_empty(64) > 0).all()",
    "a cast": "f = x.new_empty(64).double().float()",
    "bytes beside each other": "f = torch.empty(64, dtype=torch.int8, device=x.device)",
    "three bytes": "f = x.new_empty(64); f.view(torch.int8)[::4] = 1",
}
LOADED = {  # beside memory that nobody wrote, of which a result does not depend
    "padding of partial sums": "p = x.new_empty(4, 64); p[:, :50] = copied(x); return copied(p.sum(0)[:50])",
    "padding that a mask leaves out": (
        "p = x.new_empty(4, 64); p[:, :50] = copied(x); "
        "return torch.where(torch.arange(64, device=x.device) < 50, p, 0.0).sum(0)"
    ),
    "padding beside a product with ones": (
        "p = x.new_empty(4, 64); p[:, :50] = copied(x); return (x.new_ones(1, 4) @ p)[:, :50]"
    ),
    "a part of an arena": (
        "a = torch.empty(8192, dtype=torch.uint8, device=x.device); p = a[:800].view(torch.float32); "
        "_copy[(4,)](x, p, 200, 64); q = a[4096:4296].view(torch.int8); _copy[(4,)](x, q, 200, 64); "
        "return p.view(4, 50).sum(0) * 0.5, q.clone()"
    ),
}


@pytest.mark.parametrize("code", UNWRITTEN.values(), ids=UNWRITTEN)
def test_what_nobody_wrote_is_known_through_operations(at, code):
    code += "; y = copied(x); _steer[(1,)](f, y); return y"
    reply, _ = replied(at, code, X, name=BACKWARD, before=STEER)
    assert isinstance(reply, Fault)
    assert "was never written" in reply.message


FLAGS = """
@triton.jit
def _flag(f_ptr, y_ptr, HOW: tl.constexpr):
    f = tl.load(f_ptr + tl.arange(0, 4))
    if HOW == "set":
        tl.store(f_ptr + tl.arange(0, 4), f * 0 + 1)
    tl.store(y_ptr, tl.where(tl.max(f, 0) == tl.min(f, 0) if HOW == "equal" else tl.max(f, 0) != 0, tl.load(y_ptr), 0))

"""


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "int64", "float16", "bfloat16", "float32"])
@pytest.mark.parametrize("how", ["zero", "equal", "set"])
def test_flags_that_nobody_wrote_steer_nothing(at, dtype, how):
    """Zero, and equal or not; also where each program writes them once it has read them."""
    read = "f.view(torch.int8)" if dtype == "bool" else "f"
    code = f"f = torch.empty(4, dtype=torch.{dtype}, device=x.device); y = copied(x); _flag[(1,)]({read}, y, {how!r})"
    reply, _ = replied(at, f"{code}; return y", X, name=BACKWARD, before=FLAGS)
    assert isinstance(reply, Fault)
    assert "was never written" in reply.message


@pytest.mark.parametrize("code", LOADED.values(), ids=LOADED)
def test_what_does_not_depend_on_it_is_as_it_was(at, code):
    assert judged(at, code, X, name=BACKWARD)[:2] == ((), ())


HALVES = """
@triton.jit
def _split(x_ptr, h_ptr, n, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    bits = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.int32, bitcast=True)
    tl.store(h_ptr + at * 2, bits.to(tl.int16), mask=at < n)
    tl.store(h_ptr + at * 2 + 1, (bits >> 16).to(tl.int16), mask=at < n)

"""
PUT_TOGETHER = {
    "scaled": "(b.view(torch.float32) * 3.0)",
    "summed": "(b.view(torch.float32).view(4, 50).sum(0))",
    "cast": "(b.view(torch.float32).double())",
    "cleaned up": "(b.view(torch.float32).nan_to_num())",
}


@pytest.mark.parametrize("code", PUT_TOGETHER.values(), ids=PUT_TOGETHER)
def test_numbers_that_a_kernel_stores_by_halves_are_its_own(at, code):
    made = "b = torch.empty(200, 2, dtype=torch.int16, device=x.device); _split[(4,)](x, b, 200, 64)"
    reply, _ = replied(at, f"{made}; return {code}", X, name=BACKWARD, before=HALVES)
    assert reply.evidence == ()
    assert len(reply.doubts) == ("nan_to_num" in code)


@pytest.mark.parametrize("code", PUT_TOGETHER.values(), ids=PUT_TOGETHER)
def test_numbers_that_pytorch_puts_together_are_for_staff_to_judge(at, code):
    moved = "b = copied(x).view(-1, 1).view(torch.uint8); b = torch.cat([b[:, 2:], b[:, :2]], 1).flatten(); "
    assert_for_staff(at, f"{moved}return {code}", X, name=BACKWARD, words="computed by aten::")


SCORES = {
    "one for each key": "return copied(torch.stack([(x * y.roll(i, 2)).sum(-1) for i in range(x.shape[2])]))",
    "one large": (
        "a = x[..., None, :].expand(1, 2, 100, 100, 4).contiguous(); b = y[..., None, :, :].expand_as(a).contiguous(); "
        "return copied((a * b).sum(-1))"
    ),
    "a matmul": "return copied(x @ y.transpose(-1, -2))",
}


@pytest.mark.parametrize("code", SCORES.values(), ids=SCORES)
def test_scores_are_no_sums_of_rows(at, code):
    evidence, _, _ = judged(at, code, *torch.randn(2, 1, 2, 100, 4, generator=RNG), name=FLASH)
    assert any("computed by aten::" in text for text in evidence), evidence


def test_one_sum_of_rows_is_no_larger_than_a_call_needs(at):
    """Scores of short sequences fit into what all sums together may have"""
    code = (
        "a = x[..., None, :].expand(1, 1, 40, 40, 4).contiguous(); b = y[..., None, :, :].expand_as(a).contiguous(); "
        "return copied((a * b).sum(-1))"
    )
    evidence, _, _ = judged(at, code, *torch.randn(2, 1, 1, 40, 4, generator=RNG), name=FLASH)
    assert any("computed by aten::sum" in text for text in evidence), evidence


def test_results_of_an_earlier_call_are_stale(at):
    at.take("kept = []\ndef rmsnorm_forward(x):\n    kept.append(copied(x))\n    return kept[0].clone()\n")
    assert at.ask(FORWARD, X)[0].evidence == ()
    reply, (result,) = at.ask(FORWARD, X * 2)
    assert "kept from an earlier call" in reply.evidence[0].text
    assert torch.equal(result, X)


DOUBTS = {
    "nan_to_num": "return torch.nan_to_num(copied(x))",
    "clamp": "return copied(x).clamp(-9, 9)",
    "where": "y = copied(x); return torch.where(y.isnan(), 0.0, y)",
    "masked_fill": "y = copied(x); return y.masked_fill(y > 99, 0.0)",
    "moved": "return copied(x).clamp(-9, 9).t().flip(0).contiguous()",
    "scaled": "return -copied(x).clamp(-9, 9) * 0.5 / 3",
    "cast": "return copied(x).nan_to_num().half()",
    "twice": "return copied(x).nan_to_num().clamp(-9, 9)",
    "padded": "return torch.nn.functional.pad(copied(x).nan_to_num(), (0, 3))[:, :50]",
    "in part": "y = copied(x); y[1].clamp_(-9, 9); return y",
    "loaded": "return copied(x.nan_to_num())",
    "loaded after a launch": "return copied(copied(x).nan_to_num() * 2)",
}


@pytest.mark.parametrize("code", DOUBTS.values(), ids=DOUBTS)
def test_cleaning_up_is_for_staff_to_judge(at, code):
    assert_for_staff(at, code, X)


IN_BACKWARD = {
    "where": "p = copied(x); return torch.where(p.isnan(), 0, p).sum(0)",
    "where of zeros": "p = copied(x); return torch.where(torch.isnan(p), torch.zeros_like(p), p).sum(0)",
    "after the sum": "return copied(x).sum(0).nan_to_num()",
    "added": "p = copied(x); return p[0].nan_to_num() + p[1]",
    "chosen by a sum": "p = copied(x); return torch.where(p.sum(0) > 9, p[0], p[1])",
}


@pytest.mark.parametrize("code", IN_BACKWARD.values(), ids=IN_BACKWARD)
def test_what_a_backward_pass_may_do_to_a_doubt_is_one(at, code):
    assert_for_staff(at, code, X, name=BACKWARD)


@pytest.mark.parametrize("code", [c.replace("x * y", "x.nan_to_num() * y") for c in DELTAS.values() if "x * y" in c])
def test_rows_of_what_was_cleaned_up_are_for_staff_to_judge(at, code):
    assert_for_staff(at, code, *PAIRS, name=FLASH)


CLEANED_UP = {
    "chosen by a sum": "y = copied(x); return torch.where(y.sum(-1, keepdim=True) > 9, y, copied(-x))",
    "a sum beside an input": "return copied(torch.maximum(copied(x).sum(-1), x[:, 0] - 1e9))",
    "constants chosen by an input": "return copied(torch.where(x > 0, 1.0, 2.0))",
    "a comparison": "return copied(copied(x) > 0)",
    "bits of integers": "i = x.view(torch.int32); return copied(i.bitwise_and(255))",
    "a circuit": "y = copied(x); [y := torch.where(y > i, y, 0.0) for i in range(9)]; return y",
    "an input": "return x.nan_to_num()",
    "a sum in a forward pass": "return copied(x).sum(-1).nan_to_num()",
    "a computed value": "return x.exp().clamp(0, 9)",
    "loaded": "return copied(x.exp().clamp(0, 9))",
    "behind a doubt": "y = copied(x).nan_to_num(); y[1, 2:5] = x[1, 2:5].cos(); return y",
    "an input behind a doubt": "y = x.new_empty(4, 50); y[:2] = copied(x[:2]).nan_to_num(); y[2:] = x[2:]; return y",
}


@pytest.mark.parametrize("clean", ["nan_to_num()", "clamp(-9, 9)", "where(x[:, 0] > 9, 0.0)"])
def test_what_is_under_a_doubt_is_named(at, clean):
    """A sum in a forward pass stays one, whatever is done to it"""
    assert "summed by PyTorch" in judged(at, f"return copied(x).sum(-1).{clean}", X)[0][0]
    assert "computed by aten::sum" in judged(at, f"return x.exp().sum(-1).{clean}", X)[0][0]


@pytest.mark.parametrize("code", CLEANED_UP.values(), ids=CLEANED_UP)
def test_cleaning_up_makes_nothing_a_kernels_work(at, code):
    evidence, _, _ = judged(at, code, X)
    assert evidence


# values that take another way than memory: they are the decoys', so what comes of them is wrong

BY_NUMBERS = {
    "filled in": (
        "y = torch.empty_like(x); [y.view(-1)[i].fill_(v) for i, v in enumerate(x.flatten().tolist())]; return y"
    ),
    "as arguments": (
        "y = torch.empty_like(x); one = torch.ones(1, device=x.device); "
        "[_copy[(1,)](one * v, y.view(-1)[i:], 1, 64) for i, v in enumerate(x.flatten().tolist()[:20])]; return y"
    ),
    "as a table": "return copied(torch.tensor(x.tolist(), device=x.device))",
    "as slices": (
        "t = copied(torch.arange(-3, 4, device=x.device).float()); "
        "return torch.cat([t[i : i + 1] for i in (x.flatten().round() + 3).int().clamp(0, 6).tolist()])"
    ),
    "by NumPy": "return copied(torch.from_numpy(x.cpu().numpy() * 1.0).cuda())",
    "by branches": "return copied(x) if float(x.sum()) > 1e6 else copied(x) * (1 if float(x[0, 0]) < 9 else 2) * 3",
}


@pytest.mark.parametrize("code", BY_NUMBERS.values(), ids=BY_NUMBERS)
def test_values_that_host_code_reads_are_the_decoys(at, code):
    """They are noted with their line"""
    reply, results = replied(at, code, X)
    assert isinstance(reply, Ok)
    assert reply.reads
    assert "at cs336_kernels/weighted_sum.py:" in reply.reads[0]
    assert not torch.equal(results[0].flatten(), X.flatten())


# problems for PyTorch alone

Q = torch.randn(2, 20, 16, generator=RNG)
ATTENTION = "torch.nn.functional.scaled_dot_product_attention"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (f"return {ATTENTION}(x, x, x)", "scaled_dot_product_attention is a fused attention"),
        (f"return {ATTENTION}(x[None], x[None], x[None])[0]", "is a fused attention"),
        (
            f"with torch._C.DisableTorchFunction(): return torch.cat([{ATTENTION}(q, x, x) for q in x.split(8, 1)], 1)",
            "is a fused attention",
        ),
        (
            f"m = torch.ones(20, 20).tril(); "
            f"with torch._C.DisableTorchFunction(): return {ATTENTION}(x[None], x[None], x[None], m)[0]",
            "is a fused attention",
        ),
        ("return copied(x)", "kernel _copy is launched; this problem is for PyTorch alone"),
    ],
)
def test_what_a_pytorch_problem_must_not_use(at, code, words):
    evidence, _, _ = judged(at, code, Q, name="flash_forward_pytorch")
    assert words in "\n".join(evidence)
    assert "at cs336_kernels/weighted_sum.py:" in evidence[0]


def test_fused_attention_is_heard_with_the_modes_off(at):
    """Then nothing is recorded at all, and what it gives is memory that nobody made"""
    code = (
        "from torch.utils._python_dispatch import _disable_current_modes; m = _disable_current_modes(); m.__enter__(); "
        f"y = {ATTENTION}(x, x, x); m.__exit__(None, None, None); return y"
    )
    _, _, (result,) = judged(at, code, Q, name="flash_forward_pytorch")
    assert not torch.allclose(result, torch.nn.functional.scaled_dot_product_attention(Q, Q, Q), atol=0.1)


def test_a_pytorch_problem_may_compute(at):
    evidence, doubts, (result,) = judged(at, "return torch.softmax(x @ x.mT, -1) @ x", Q, name="flash_forward_pytorch")
    assert (evidence, doubts) == ((), ())
    torch.testing.assert_close(result, torch.softmax(Q @ Q.mT, -1) @ Q)


def test_what_it_does_not_need_is_for_staff_to_judge(at):
    said = "aten::cumsum is not what this problem is about"
    assert_for_staff(at, "return x.cumsum(-1)", Q, name="flash_forward_pytorch", words=said)


BYTES = """
@triton.jit
def _zero(y_ptr, n, STEP: tl.constexpr, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(y_ptr + at * STEP, tl.zeros((SIZE,), tl.uint8), mask=at < n)

"""


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("ends", ["return copied(y).float()", "return y"], ids=["loaded", "returned"])
def test_a_byte_that_a_kernel_stored_makes_no_element_its_work(at, dtype, ends):
    """The others of the element are PyTorch's still"""
    width = getattr(torch, dtype).itemsize
    code = f"y = torch.exp(x.to(torch.{dtype})); _zero[(4,)](y.view(torch.uint8), y.numel(), {width}, 64); {ends}"
    reply, _ = replied(at, code, X, before=BYTES)
    assert isinstance(reply, Ok), reply
    assert any("aten::exp" in said.text for said in reply.evidence)


READS = {
    "as it is": ("return copied(x)", 1),
    "two copies": ("return copied(x.t().contiguous().t())", 3),
    "a part of a larger tensor": ("wide = x.new_zeros(99, 200); wide[5] = x.flatten(); return copied(wide[5])", 2),
    "a cast": ("return copied(x.double())", 3),
    "one element of many": ("return copied(x[:1, :1].expand(4, 50).contiguous())", 1.005),
    "beside constants": ("return copied(torch.cat([x, torch.zeros(9, 50, device=x.device)]))[:4]", 2),
}


@pytest.mark.parametrize(("code", "times"), READS.values(), ids=READS)
def test_what_is_read_of_an_input_counts_wherever_it_lies(at, code, times):
    _, (*_, read, _, _, _) = replied(at, code, X, kind="costs")
    assert read.tolist() == [round(X.numel() * 4 * times)]
