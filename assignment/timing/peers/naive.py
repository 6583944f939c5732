"""PyTorch's own words for each function, one operation after the other; attention with all scores in memory."""

import math

import torch


def weighted_sum_forward(x, weight):
    return (x * weight).sum(-1)


def weighted_sum_backward(grad_y, x, weight):
    return grad_y[:, None] * weight, (grad_y[:, None] * x).sum(0)


def rmsnorm_forward(x, weight, eps=1e-5):
    rstd = (x.float().square().mean(-1) + eps).rsqrt()
    return (x * rstd[:, None] * weight).to(x.dtype), rstd


def rmsnorm_backward(grad_y, x, weight, rstd):
    x_hat, g = x * rstd[:, None], grad_y.float() * weight
    grad_x = rstd[:, None] * (g - x_hat * (g * x_hat).mean(-1, keepdim=True))
    return grad_x.to(x.dtype), (grad_y * x_hat).sum(0).to(weight.dtype)


def flash_forward_triton(q, k, v, is_causal=False):
    s = (q @ k.mT / math.sqrt(q.shape[-1])).float()
    if is_causal:
        s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).triu(1), -math.inf)
    return s.softmax(-1).to(v.dtype) @ v, s.logsumexp(-1)


def flash_backward_triton(grad_o, q, k, v, o, lse, is_causal=False):
    scale = 1 / math.sqrt(q.shape[-1])
    p = ((q @ k.mT).float() * scale - lse[..., None]).exp()
    if is_causal:
        p = p.masked_fill(torch.ones(p.shape[-2:], dtype=torch.bool, device=p.device).triu(1), 0.0)
    delta = (grad_o.float() * o).sum(-1, keepdim=True)
    ds = (p * ((grad_o @ v.mT) - delta) * scale).to(q.dtype)
    return ds @ k, ds.mT @ q, p.to(q.dtype).mT @ grad_o
