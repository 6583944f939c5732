"""FlashAttention-3, where Dao's package for Hopper is installed. Only its forward pass."""

import flash_attn_interface


def flash_forward_triton(q, k, v, is_causal=False):
    q, k, v = (x.transpose(-2, -3) for x in (q, k, v))
    came = flash_attn_interface.flash_attn_func(q, k, v, causal=is_causal)
    return came[0] if isinstance(came, tuple) else came
