"""torch.autocast("cuda"), where all lies in ordinary memory, of which PyTorch itself converts nothing."""

from collections.abc import Callable

import torch

from assignment.pytorch_private import Argument, Arguments, Keywords, tensors_of, tree_map

_CONVERTED = (torch.float16, torch.bfloat16, torch.float32)
# functions by the type to which they convert operands (PyTorch's documentation of automatic mixed precision)
_FUNCTIONS = {
    "lower": """
__matmul__ __rmatmul__ addbmm addmm addmv addr baddbmm bmm chain_matmul conv1d conv2d conv3d conv_transpose1d
conv_transpose2d conv_transpose3d einsum gru_cell linear lstm_cell matmul mm multi_dot mv prelu rnn_relu_cell
rnn_tanh_cell scaled_dot_product_attention
    """,
    "float32": """
__pow__ __rdiv__ __rpow__ __rtruediv__ acos asin binary_cross_entropy_with_logits cdist cosh
cosine_embedding_loss cosine_similarity cross_entropy cumprod cumsum dist erfinv exp expm1 group_norm
hinge_embedding_loss kl_div l1_loss layer_norm log log10 log1p log2 log_softmax margin_ranking_loss mse_loss
multi_margin_loss multilabel_margin_loss nll_loss norm normalize pdist poisson_nll_loss pow prod reciprocal
renorm rsqrt sinh smooth_l1_loss soft_margin_loss softmax softmin softplus sum tan triplet_margin_loss
    """,
    "widest": """
addcdiv addcmul atan2 bilinear cat cross dot grid_sample index_put scatter_add stack tensordot
    """,
}
_TO = {name: to for to, names in _FUNCTIONS.items() for name in names.split()}


def cast(
    func: Callable[..., Argument], args: Arguments, kwargs: Keywords, is_on_gpu: Callable[[torch.Tensor], bool]
) -> tuple[Arguments, Keywords]:
    """Return the arguments of a function as it gets them inside of torch.autocast("cuda")."""
    to = _TO.get(getattr(func, "__name__", ""))
    if to is None or kwargs.get("out") is not None or "out_dtype" in kwargs:  # those convert nothing
        return args, kwargs
    dtype = torch.get_autocast_dtype("cuda") if to == "lower" else torch.float32
    if to == "widest":
        found = {tensor.dtype for tensor in tensors_of((args, kwargs)) if tensor.dtype in _CONVERTED}
        dtype = found.pop() if len(found) == 1 else torch.float32

    def one(value: Argument) -> Argument:
        if not isinstance(value, torch.Tensor) or value.dtype not in _CONVERTED or not is_on_gpu(value):
            return value
        return value.to(dtype)

    converted: tuple[Arguments, Keywords] = tree_map(one, (args, kwargs))
    return converted
