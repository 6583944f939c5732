"""The backward pass of wide rows for Hopper alone, in Gluon: RMSNorm's entry, with means."""

from ..rmsnorm.hopper import of_rows


def layernorm_backward(grad_y, x, weight, mean, rstd):
    """Return (grad_x, grad_weight, grad_bias) as the operator's reference does, on a Hopper GPU.

    Raises:
        RuntimeError: as `of_rows`.
    """
    grad_x, (grad_weight, grad_bias) = of_rows(grad_y, x, weight, mean, rstd, 2, 4)
    return grad_x, grad_weight, grad_bias
