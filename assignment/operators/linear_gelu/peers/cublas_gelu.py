"""PyTorch's own words for it: cuBLAS, which adds the bias, and a kernel for the GELU."""

import torch


def linear_gelu(x, weight, bias, approximate="none"):
    return torch.nn.functional.gelu(torch.nn.functional.linear(x, weight, bias), approximate=approximate)
