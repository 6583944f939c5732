"""What can go wrong in attention, forward and backward."""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from assignment.operators.flash_attention import backward_misconceptions, forward_misconceptions
from assignment.operators.misconception import Call, Models


def recomputed(call: Call) -> Sequence[Tensor]:
    """The gradients that follow from the o and lse of the call, right or not."""
    return backward_misconceptions.Recomputed()(call)


def delta_apart(call: Call, misread: Sequence[Tensor]) -> list[Sequence[Tensor]]:
    """The gradients where D alone, which a kernel of its own may compute, has read other tensors, or all but D has."""
    came: list[Sequence[Tensor]] = []
    if any(misread[i] is not call.tensors[i] for i in (0, 4)):
        for others, of_delta in ((misread, call.tensors), (call.tensors, misread)):
            grad_o, o = (of_delta[i].double() for i in (0, 4))
            delta = (grad_o * o).sum(-1, keepdim=True)
            model = backward_misconceptions.Recomputed(delta=lambda *_, delta=delta: delta)
            came.append(model(replace(call, tensors=others)))
    return came


CHAPTER = "handout/flash_attention.md"
MODELS = {
    "attention_forward": Models(
        forward_misconceptions.MISCONCEPTIONS,
        f"{CHAPTER}#forward-what-goes-wrong",
        n_inner=2,
        is_by_entry=True,
        has_products=True,
    ),
    "attention_backward": Models(
        backward_misconceptions.MISCONCEPTIONS,
        f"{CHAPTER}#backward-what-goes-wrong",
        right=recomputed,
        apart=delta_apart,
        n_inner=2,
        is_by_entry=True,
        has_products=True,
    ),
}
