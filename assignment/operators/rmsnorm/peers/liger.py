"""Liger's RMSNorm, where the package liger-kernel is installed. Its backward pass cannot be called by itself."""

from liger_kernel.ops.rms_norm import LigerRMSNormFunction


def rmsnorm_forward(x, weight, eps=1e-5):
    return LigerRMSNormFunction.apply(x, weight, eps)
