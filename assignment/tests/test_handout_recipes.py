"""The inputs that the handout recommends for debugging have the answers that it says they have.

Its tables "When … is wrong" and the answers in section 15 are held against the oracle, in float64.
"""

import math

import pytest
import torch

from tests import oracle

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
    """Answers 5a and 5c: Σ x dx = ε r³ Σ h x; a row of zeros has dx = h / √ε"""
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
