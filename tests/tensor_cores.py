"""What tensor cores do to float32 operands: TF32."""

import torch
from torch import Tensor


def truncate(x: Tensor) -> Tensor:
    """Float32 cut to TF32's 10 mantissa bits, which is what an H100 or H200 does to the operands of tl.dot."""
    return (x.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


def nearest(x: Tensor) -> Tensor:
    """Float32 rounded to TF32's 10 mantissa bits."""
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
