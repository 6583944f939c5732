"""FlashAttention-3, where Dao's package for Hopper is installed, or the wheel fa3-fwd. Only its forward pass."""

import importlib
import importlib.util

NAMES = ("flash_attn_interface", "fa3_fwd_interface")  # as it is built from source, and in the wheel
_installed = importlib.import_module(next((name for name in NAMES if importlib.util.find_spec(name)), NAMES[0]))


def flash_forward_triton(q, k, v, is_causal=False):
    q, k, v = (x.transpose(-2, -3) for x in (q, k, v))
    came = _installed.flash_attn_func(q, k, v, causal=is_causal)
    return came[0] if isinstance(came, tuple) else came
