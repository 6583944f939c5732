"""PyTorch's own words for it, one operation after the other, with all scores in memory."""

import math

import torch


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
