"""RMSNorm and attention as operators that PyTorch knows, for practice: cs336::rmsnorm and cs336::flash_attention.

An operator of torch.library has a schema, a body, which launches kernels, and what a compiler and autograd need in
place of the body: a fake implementation, which makes results of the right shape, dtype and strides without data, and
a formula for its gradients, which calls a second operator. The kernels are those of cs336_kernels/rmsnorm.py and
cs336_kernels/flash_attention.py.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def rmsnorm_op(
    x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"], eps: float = 1e-5
) -> Float[Tensor, "*batch d"]:
    """y of `rmsnorm_forward`, by the operator cs336::rmsnorm(Tensor x, Tensor weight, float eps=1e-05).

    The operator returns y, and what else its backward pass needs; it writes to no input.
    Gradients: of x and weight, by `rmsnorm_backward` in an operator of its own, in the namespace cs336.
    Without data: each operator's fake implementation gives the shape, dtype and strides of what its body returns.

    Raises:
        ValueError: as `rmsnorm_forward`, before any launch.
    """
    raise NotImplementedError("cs336_kernels/practice/custom_op.py: rmsnorm_op, handout/custom_op.md")


def attention_op(
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    is_causal: bool = False,
) -> Float[Tensor, "*batch n_queries d"]:
    """o of `flash_forward_triton`, by cs336::flash_attention(Tensor q, Tensor k, Tensor v, bool is_causal=False).

    The operator returns o, and what else its backward pass needs; it writes to no input.
    Gradients: of q, k and v, by `flash_backward_triton` in an operator of its own, in the namespace cs336.
    Without data: as `rmsnorm_op`.

    Raises:
        ValueError: as `flash_forward_triton`, before any launch.
    """
    raise NotImplementedError("cs336_kernels/practice/custom_op.py: attention_op, handout/custom_op.md")
