"""What can go wrong in dropout, residual and LayerNorm in one pass: in the mask, its scale, and LayerNorm itself."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from assignment.operators.dropouts import Dropout, masked, told_of_masks, usual
from assignment.operators.layer_norms.backward import told_backward
from assignment.operators.layer_norms.forward import told_forward
from assignment.operators.layer_norms.model import Backward, Forward
from assignment.operators.misconception import Call, Model, Models, table

CHAPTER = "dropout_add_layernorm"
DEFAULTS: dict[str, Any] = {"p": 0.1, "seed": 0, "eps": 1e-5}
NUMBERS = "handout/dropout_add_layernorm.md#what-goes-wrong"


def option(call: Call, name: str) -> Any:
    return call.options.get(name, DEFAULTS[name])


def summed(call: Call, dropout: Dropout = usual) -> Tensor:
    x, residual = (tensor.double() for tensor in call.tensors[:2])
    return residual + x * dropout(x.shape, option(call, "p"), option(call, "seed"))


def forward(call: Call, way: Forward, dropout: Dropout = usual) -> Sequence[Tensor]:
    """Return (y, summed, mean, rstd)."""
    normalized = summed(call, dropout)
    weight, bias = call.tensors[2:]
    y, mean, rstd = way(normalized, weight, bias, option(call, "eps"))
    return y, normalized, mean, rstd


def backward(call: Call, way: Backward, dropout: Dropout = usual) -> Sequence[Tensor]:
    """Return (grad_x, grad_residual, grad_weight, grad_bias)."""
    grad_residual, grad_weight, grad_bias = way(*call.tensors)
    factor = dropout(grad_residual.shape, option(call, "p"), option(call, "seed"))
    return grad_residual * factor, grad_residual, grad_weight, grad_bias


TOLD_FORWARD = """
index-in-memory | the-mask | Your mask counts i as x lies in memory, by its strides | i = row · d + column, whatever the
    strides are.
residual-forgotten | forward-mathematics | Your result equals the one without the residual | summed = residual + keep ·
    x / (1 − p).
sum-dropped | forward-mathematics | Your result equals the one in which the residual has been dropped out too | summed =
    residual + keep · x / (1 − p): what does keep multiply?
"""
TOLD_BACKWARD = """
gradients-swapped | backward-mathematics | Your grad_x and grad_residual have changed places | Which of them passes
    through the dropout?
residual-dropped | backward-mathematics | Your grad_residual has been dropped out too | The residual does not pass
    through the dropout.
"""


def in_memory(call: Call) -> Iterator[Sequence[Tensor]]:
    step, along = call.tensors[0].reshape(-1, call.tensors[0].shape[-1]).stride()
    yield forward(call, Forward(), masked(lambda n, d: torch.arange(n)[:, None] * step + torch.arange(d) * along))


def replaced(call: Call, x: Tensor, residual: Tensor) -> Sequence[Tensor]:
    return forward(Call(call.function, [x, residual, *call.tensors[2:]], call.options), Forward())


FORWARD: dict[str, Model] = {
    "index-in-memory": in_memory,
    "residual-forgotten": lambda call: [replaced(call, call.tensors[0], 0 * call.tensors[1])],
    "sum-dropped": lambda call: [
        replaced(call, call.tensors[0].double() + call.tensors[1].double(), 0 * call.tensors[1])
    ],
}
BACKWARD: dict[str, Model] = {
    "gradients-swapped": lambda call: ([b, a, *rest] for a, b, *rest in [backward(call, Backward())]),
    "residual-dropped": lambda call: ([a, a, *rest] for a, _, *rest in [backward(call, Backward())]),
}
MODELS = {
    "dropout_add_layernorm_forward": Models(
        [
            *table(CHAPTER, TOLD_FORWARD, FORWARD, prefix=f"{CHAPTER}-"),
            *told_of_masks(CHAPTER, "", lambda call, dropout: forward(call, Forward(), dropout)),
            *told_forward(CHAPTER, forward, normalized=summed),
        ],
        NUMBERS,
    ),
    "dropout_add_layernorm_backward": Models(
        [
            *told_of_masks(CHAPTER, "backward-", lambda call, dropout: backward(call, Backward(), dropout)),
            *table(CHAPTER, TOLD_BACKWARD, BACKWARD, prefix=f"{CHAPTER}-"),
            *told_backward(CHAPTER, backward),
        ],
        NUMBERS,
        right=lambda call: backward(call, Backward()),
    ),
}
