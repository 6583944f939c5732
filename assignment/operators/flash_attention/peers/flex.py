"""FlexAttention: PyTorch's attention with a mask of one's own, compiled. It has no backward pass by itself."""

import functools

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

torch._dynamo.config.recompile_limit = 100  # sizes: each is compiled for itself, with which it is twice as fast
_flex = torch.compile(flex_attention, dynamic=False)


def flash_forward_triton(q, k, v, is_causal=False):
    mask = _causal(q.shape[-2], k.shape[-2], q.device) if is_causal else None
    return _flex(q, k, v, block_mask=mask, return_lse=True)  # type: ignore[arg-type]


@functools.cache
def _causal(n_queries, n_keys, device):
    return create_block_mask(lambda b, h, i, j: j <= i, None, None, n_queries, n_keys, device=device)
