"""What the handout says without showing code: answers to inputs that it recommends, and figures that it computes.

The lists under "what goes wrong" and the answers to questions are held against the oracle, in float64.
"""

import math
import os
import re
from pathlib import Path

import pytest
import torch

from assignment.tests.forked import python
from assignment.tests.graded import QUICK, ROOT
from assignment.tests.pages import blocks
from assignment.tests.specification import oracle

CHAPTERS = Path(__file__).resolve().parents[2] / "handout"
BANDWIDTH, BF16_PEAK = 4.28e12, 700e12  # of an H200: bytes and operations per second
N_QUERIES, N_KEYS, D = 33, 50, 40


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def ones(*shape):
    return torch.ones(*shape, dtype=torch.float64)


@pytest.fixture(autouse=True)
def _same_inputs():
    torch.manual_seed(0)


def close(a, b):
    torch.testing.assert_close(a, torch.as_tensor(b, dtype=torch.float64).expand_as(a), rtol=1e-9, atol=1e-9)


def test_weighted_sum_counts_rows_and_columns():
    x = ones(37, 100)
    close(oracle.weighted_sum_forward(x, ones(100)), 100)
    close(oracle.weighted_sum_backward(ones(37), x, ones(100))[1], 37)


def test_weighted_sum_tells_where_an_element_is():
    x = torch.zeros(37, 100, dtype=torch.float64)
    x[5, 70] = 1
    y = oracle.weighted_sum_forward(x, torch.arange(100.0))
    grad_weight = oracle.weighted_sum_backward(torch.arange(37.0), x, ones(100))[1]
    assert (y.nonzero().tolist(), y[5]) == ([[5]], 70)
    assert (grad_weight.nonzero().tolist(), grad_weight[70]) == ([[70]], 5)


def rmsnorm_grad_x(x, weight, grad_y, eps=1e-5):
    return oracle.rmsnorm_backward(grad_y, x, weight, oracle.rmsnorm_forward(x, weight, eps)[1])


def test_rmsnorm_of_simple_rows():
    x, eps = normal(7, 100), 1e-12
    y, _ = oracle.rmsnorm_forward(x, ones(100), eps)
    close(oracle.rmsnorm_forward(3 * ones(7, 100), ones(100), eps)[0], 1)
    close(oracle.rmsnorm_forward(1000 * x, ones(100), eps)[0], y)
    close(rmsnorm_grad_x(x, ones(100), y, eps)[0], 0)
    grad_x, grad_weight = rmsnorm_grad_x(x, torch.zeros(100), ones(7, 100), eps)
    close(grad_x, 0)
    close(grad_weight, y.sum(0))
    close(rmsnorm_grad_x(ones(7, 100), ones(100), ones(7, 100), eps)[1], 7)


def test_rmsnorm_gradient_has_next_to_no_component_along_x():
    """Answers to handout/rmsnorm.md#questions: Σ x dx = ε r³ Σ h x; a row of zeros has dx = h / √ε"""
    x, weight, grad_y, eps = normal(7, 100), normal(100), normal(7, 100), 0.3
    rstd = oracle.rmsnorm_forward(x, weight, eps)[1]
    along = (x * rmsnorm_grad_x(x, weight, grad_y, eps)[0]).sum(-1)
    close(along, eps * rstd**3 * (weight * grad_y * x).sum(-1))
    close(rmsnorm_grad_x(torch.zeros(7, 100), weight, grad_y)[0], weight * grad_y / math.sqrt(1e-5))


def test_attention_counts_keys():
    q, k, v = torch.zeros(N_QUERIES, D), normal(N_KEYS, D), torch.arange(float(N_KEYS)).unsqueeze(-1).expand(-1, D)
    o, lse = oracle.attention_forward(q, k, v)
    close(o, (N_KEYS - 1) / 2)
    close(lse.exp(), N_KEYS)
    close(oracle.attention_forward(q, k, v, is_causal=True)[1].exp(), torch.arange(1.0, N_QUERIES + 1))
    close(oracle.attention_forward(normal(N_QUERIES, D), k, ones(N_KEYS, D))[0], 1)


def test_attention_gradients_that_are_known():
    q, k, v, grad_o = normal(N_QUERIES, D), normal(N_KEYS, D), normal(N_KEYS, D), normal(N_QUERIES, D)
    _, grad_k, grad_v = oracle.attention_backward(grad_o, 0 * q, k, v)
    close(grad_k, 0)
    close(grad_v, grad_o.sum(0) / N_KEYS)
    grad_q, grad_k, _ = oracle.attention_backward(grad_o, q, k, v[:1].expand(N_KEYS, D))
    close(grad_q, 0)
    close(grad_k, 0)
    close(oracle.attention_backward(grad_o, q, k[:1].expand(N_KEYS, D), v)[0], 0)
    for once, twice in zip(
        oracle.attention_backward(grad_o, q, k, v), oracle.attention_backward(2 * grad_o, q, k, v), strict=True
    ):
        close(twice, 2 * once)


def test_attention_gradients_of_one_pair_and_of_unseen_keys():
    q, k, v, grad_o = normal(1, D), normal(1, D), normal(1, D), normal(1, D)
    grad_q, grad_k, grad_v = oracle.attention_backward(grad_o, q, k, v)
    close(grad_q, 0)
    close(grad_k, 0)
    close(grad_v, grad_o)
    _, grad_k, grad_v = oracle.attention_backward(normal(10, D), normal(10, D), normal(100, D), normal(100, D), True)
    close(grad_k[10:], 0)
    close(grad_v[10:], 0)


def test_rmsnorm_gradient_is_the_formula():
    x, weight, grad_y = normal(7).requires_grad_(), normal(7), normal(7)
    r = (x.square().mean() + 1e-5).rsqrt()
    (expected,) = torch.autograd.grad((x * r * weight * grad_y).sum(), x)
    h, x_hat = grad_y * weight, x * r
    close(r * (h - x_hat * (h * x_hat).mean()), expected)


def test_d_is_the_row_sum_of_grad_o_times_o():
    q, k, v, grad_o = normal(5, 4), normal(6, 4), normal(6, 4), normal(5, 4)
    p = (q @ k.T / 2).softmax(-1)
    close((p * (grad_o @ v.T)).sum(-1), (grad_o * (p @ v)).sum(-1))


# Figures.


def says(chapter, *figures):
    """Whether the chapter has each of the figures."""
    text = " ".join((CHAPTERS / f"{chapter}.md").read_text(encoding="utf-8").split())
    missing = [figure for figure in figures if figure not in text]
    return not missing or pytest.fail(f"handout/{chapter}.md does not say {missing}")


def us(n_bytes):
    return f"{n_bytes / BANDWIDTH * 1e6:,.0f} µs"


def test_costs_of_row_operators():
    x = 2 * 65_536 * 4_096
    assert says("costs", f"{x / 1e6:.0f} MB", us(x), f"{3 * x / 1e6:,.0f} MB", us(3 * x))
    elements = 32_768 * 4_096
    eager = (2 + 4) + (4 + 4) + 4 + (4 + 4) + (4 + 4) + (4 + 2)
    assert says("costs", f"{eager} bytes", us(4 * elements), us(6 * elements), us(eager * elements))
    at = 4 * elements / 3.43e12
    assert says("costs", f"{at * 1e6:.0f} µs, {3.43e12 / BANDWIDTH:.0%}".replace("%", " %"))


def test_costs_of_attention():
    heads, n, d = 16, 16_384, 128
    flop, qkvo, square = heads * 2 * (2 * n * n * d), heads * 4 * n * d * 2, heads * n * n * 2
    naive = qkvo + 4 * square
    assert says("costs", f"{flop / 1e12:.1f} TFLOP, at least {flop / BF16_PEAK * 1e3:.1f} ms", f"{square / 1e9:.1f} GB")
    assert says("costs", f"{naive / 1e9:.1f} GB, {naive / BANDWIDTH * 1e3:.1f} ms, intensity {flop / naive:.0f}")
    assert says("costs", f"{qkvo / 1e9:.2f} GB, {qkvo / BANDWIDTH * 1e3:.2f} ms, intensity {flop / qkvo:.0f}")
    assert says("costs", f"{BF16_PEAK / BANDWIDTH:.0f} operations per byte", f"{flop / 545e12 * 1e3:.1f} ms")


def test_costs_of_the_ways_to_dq():
    heads, n, d, tile = 16, 16_384, 128, 64
    product, updates = heads * 2 * n * n * d, heads * (n // tile) * n * d
    five, seven = (f"{count * product / BF16_PEAK * 1e3:.1f} ms" for count in (5, 7))
    assert says("dq_race", five, seven, f"{updates / 1e9:.1f} billion", f"{4 * updates / 1e9:.0f} GB")


def test_tiles_on_the_diagonal():
    tiles = [tokens // 64 for tokens in (1024, 4096, 16_384)]
    shares = [f"{200 / (n + 1):.1f} %" for n in tiles]  # n of n (n + 1) / 2 that are visited
    assert says("speed", *shares)


def test_registers_of_an_accumulator():
    text = "64 for 64 × 128 in 4 warps, 128 for 128 × 128 in 4 warps, 64 in 8, and 256 for 128 × 256 in 4"
    shapes = [(64, 128, 4), (128, 128, 4), (128, 128, 8), (128, 256, 4)]
    assert [rows * cols // (32 * warps) for rows, cols, warps in shapes] == [64, 128, 64, 256]
    assert says("speed", text)


def test_what_padded_keys_add():
    shares = []
    for n_keys in (64, 65, 100, 1000):
        padded = torch.nn.functional.pad(normal(n_keys), (0, -n_keys % 64))
        shares.append(1 - padded[:n_keys].exp().sum() / padded.exp().sum())
    assert [round(100 * share.item()) for share in shares] == [0, 38, 15, 1]
    assert says("memory", "38 % too small for 65 keys, 15 % for 100, 1 % for 1,000")


def test_what_rounding_lse_costs():
    lse = torch.tensor(30.06, dtype=torch.float64)
    off = [torch.expm1(lse - lse.to(dtype).double()).abs() for dtype in (torch.float32, torch.float16, torch.bfloat16)]
    float32, float16, bfloat16 = (100 * share.item() for share in off)
    assert says("numerics", f"{float32:.4f} % if it is kept in float32", f"{float16:.2f} %", f"{bfloat16:.1f} %")
    epsilons = [f"{torch.finfo(dtype).eps:.1e}" for dtype in (torch.float32, torch.bfloat16, torch.float16)]
    assert says("numerics", "{} for float32, {} for bfloat16, {} for float16".format(*epsilons))


def test_a_sum_of_ones_stops():
    total = torch.zeros((), dtype=torch.bfloat16)
    for _ in range(1000):
        total += 1
    assert total == 256


def state(logits, values):
    m = logits.max()
    p = torch.exp(logits - m)
    return m, p.sum(), p @ values


def merge(first, second):
    m = torch.maximum(first[0], second[0])
    alpha, beta = torch.exp(first[0] - m), torch.exp(second[0] - m)
    return m, alpha * first[1] + beta * second[1], alpha * first[2] + beta * second[2]


def test_states_merge_in_any_order():
    logits, values = 1000 * normal(90), normal(90, 5)
    one, two, three = (state(logits[i : i + 30], values[i : i + 30]) for i in (0, 30, 60))
    for m, total, acc in (merge(merge(one, two), three), merge(one, merge(two, three)), merge(three, merge(two, one))):
        close(acc / total, logits.softmax(0) @ values)
        close(m + total.log(), logits.logsumexp(0))


def online_sum(logits):
    """l of rows of tiles: (rows, tiles, keys)."""
    m = torch.full(logits.shape[:1], -torch.inf, dtype=logits.dtype)
    total = torch.zeros_like(m)
    for tile in logits.unbind(1):
        m_new = torch.maximum(m, tile.amax(-1))
        total = total * torch.exp(m - m_new) + torch.exp(tile - m_new[:, None]).sum(-1)
        m = m_new
    return total


def test_the_online_sum_rounds_little():
    logits = 4 * torch.randn(200, 256, 64)
    error = online_sum(logits).double() / online_sum(logits.double()) - 1
    assert error.abs().max() < 20 * 2**-24  # the bound allows more than 512 times u


# Kernels.

LINES = {2: "m", 6: "S", 7: "S", 8: "m_new", 9: "alpha", 10: "P", 11: "l", 12: "acc"}  # what each computes
STEP = """
import torch
from assignment.simulator import install
install()
import triton
import triton.language as tl

@triton.jit
def kernel(q_ptr, k_ptr, v_ptr, seen_ptr, l_ptr, acc_ptr, o_ptr, scale, Q_TILE_SIZE: tl.constexpr):
    at = tl.arange(0, Q_TILE_SIZE)
    tile = at[:, None] * Q_TILE_SIZE + at[None, :]
    q, v, seen, acc, l = (tl.load(q_ptr + tile), tl.load(v_ptr + tile), tl.load(seen_ptr + tile) != 0,
                          tl.load(acc_ptr + tile), tl.load(l_ptr + at))
    k_ptrs, o_ptrs, dtype, k_mask, q_mask = k_ptr + tile, o_ptr + tile, o_ptr.dtype.element_ty, tile >= 0, tile >= 0
    m = tl.full((Q_TILE_SIZE,), 0.1, tl.float32)
TRITON

torch.manual_seed(0)
q, k, v, acc = torch.randn(4, 2, 16, 16)[:, 0]
l, seen, scale, got = torch.rand(16) + 1, torch.rand(16, 16) < 0.7, 0.25, torch.empty(16, 16)
kernel[(1,)](q, k, v, seen.int(), l, acc, got, scale, 16)
queries, keys, o = slice(0, 16), slice(0, 16), torch.empty(16, 16)
m = torch.full((16,), 0.1)
PYTORCH
print((got - o).abs().max().item() < 0.02, o.std().item() > 0.1)
"""


def test_attention_line_by_line_is_one_computation_in_pytorch_and_triton(tmp_path):
    """A step of the loop, made of the lines that the chapter sets side by side"""
    (table,) = (block for block in blocks(CHAPTERS / "flash_attention.md") if block.content.startswith("line  PyTorch"))
    rows = [re.split(r"\s{2,}", line.strip(), maxsplit=2) for line in table.content.splitlines()[1:]]
    assert {int(number) for number, _, _ in rows} == {*LINES, 5, 14}
    names = {int(number): f"{LINES[int(number)]} = " for number, _, _ in rows if int(number) in LINES} | {5: "k = "}
    pytorch, triton = ([f"{names.get(int(row[0]), '')}{row[i]}" for row in rows if row[0] != "2"] for i in (1, 2))
    script = STEP.replace("TRITON", "\n".join("    " + line for line in triton)).replace("PYTORCH", "\n".join(pytorch))
    (tmp_path / "step.py").write_text(script)
    done = python(tmp_path / "step.py", env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=120)
    assert done.stdout == "True True\n", done.stderr


@pytest.mark.slow
def test_the_first_report_is_what_the_grader_prints_of_the_first_kernel(tmp_path):
    (first,) = (block for block in blocks(ROOT / "handout.md") if block.language == "python")
    shown = next(b for b in blocks(CHAPTERS / "vector_add.md") if "vector_add_strides: FAIL" in b.content)
    folder = tmp_path / "cs336_kernels" / "practice"
    folder.mkdir(parents=True)
    (folder / "vector_add.py").write_text(first.content)
    printed = iter(
        python(ROOT / "grade.py", tmp_path, "--only", "vector_add", "--seed", "7", *QUICK).stdout.splitlines()
    )
    for line in shown.content.splitlines():
        assert any(line.rstrip() == other.rstrip() for other in printed), line
