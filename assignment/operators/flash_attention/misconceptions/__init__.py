"""What can go wrong in attention, forward and backward."""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from assignment.operators.flash_attention.misconceptions import (
    backward_keys,
    backward_numbers,
    backward_products,
    backward_recomputing,
    backward_results,
    forward_axes,
    forward_keys,
    forward_numbers,
    forward_softmax,
    pairs,
)
from assignment.operators.flash_attention.misconceptions.backward_model import Recomputed
from assignment.operators.flash_attention.misconceptions.forward_model import ways
from assignment.operators.misconception import Call, Models


def recomputed(call: Call) -> Sequence[Tensor]:
    """The gradients that follow from the o and lse of the call, right or not."""
    return Recomputed()(call)


def delta_apart(call: Call, misread: Sequence[Tensor]) -> list[Sequence[Tensor]]:
    """The gradients where D alone, which a kernel of its own may compute, has read other tensors, or all but D has."""
    came: list[Sequence[Tensor]] = []
    if any(misread[i] is not call.tensors[i] for i in (0, 4)):
        for others, of_delta in ((misread, call.tensors), (call.tensors, misread)):
            grad_o, o = (of_delta[i].double() for i in (0, 4))
            delta = (grad_o * o).sum(-1, keepdim=True)
            model = Recomputed(delta=lambda *_, delta=delta: delta)
            came.append(model(replace(call, tensors=others)))
    return came


FORWARD = (forward_softmax, forward_keys, forward_numbers, forward_axes)  # the likelier first
BACKWARD = (backward_products, backward_recomputing, backward_results, backward_keys, backward_numbers)
CHAPTER = "handout/flash_attention.md"
MODELS = {
    "attention_forward": Models(
        [one for module in FORWARD for one in module.MISCONCEPTIONS],
        f"{CHAPTER}#forward-what-goes-wrong",
        n_inner=2,
        is_by_entry=True,
        ways=ways,
        pairs=pairs.FORWARD_PAIRS,
    ),
    "attention_backward": Models(
        [one for module in BACKWARD for one in module.MISCONCEPTIONS],
        f"{CHAPTER}#backward-what-goes-wrong",
        right=recomputed,
        apart=delta_apart,
        n_inner=2,
        is_by_entry=True,
        ways=ways,
        pairs=pairs.BACKWARD_PAIRS,
    ),
}
