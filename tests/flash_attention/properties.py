"""What holds between two calls of attention, whatever the oracle says: a check that does not rest on it.

Each property changes the inputs and says what the results of the unchanged ones become. It returns the changed inputs,
that function of the results, and which part of them to look at.
"""

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tests.families import Change, Results
from tests.flash_attention.inputs import Shape, long, square
from tests.inputs import normal

EVERYTHING = slice(None)
SHIFT = 0.25


def in_words(changes: dict[Callable, Shape]) -> dict[str, tuple[Callable, Shape]]:
    """Name each change, with the shape of the inputs, after its function."""
    return {
        change.__name__.removesuffix("_backward").replace("_", " "): (change, shape)
        for change, shape in changes.items()
    }


def permuting_keys_and_values_changes_nothing(rng: Generator, q: Tensor, k: Tensor, v: Tensor) -> Change:
    order = torch.randperm(k.shape[-2], generator=rng)
    return [q, k[..., order, :], v[..., order, :]], lambda o, lse: (o, lse), EVERYTHING


def shifting_every_logit_of_a_row_moves_lse_alone(rng: Generator, q: Tensor, k: Tensor, v: Tensor) -> Change:
    """The same vector added to every key adds one number to all logits of a row."""
    vector = SHIFT * normal(rng, k.shape[-1])
    shift = (q.double() @ vector.double()) / math.sqrt(q.shape[-1])
    return [q, k + vector, v], lambda o, lse: (o, lse + shift), EVERYTHING


def scaling_values_scales_o(rng: Generator, q: Tensor, k: Tensor, v: Tensor) -> Change:
    return [q, k, -v / 2], lambda o, lse: (-o / 2, lse), EVERYTHING


def batches_do_not_mix(rng: Generator, q: Tensor, k: Tensor, v: Tensor) -> Change:
    """NaN in the first batch leaves the others as they were."""
    return [poisoned(x) for x in (q, k, v)], lambda o, lse: (o, lse), slice(1, None)


def poisoned(x: Tensor) -> Tensor:
    x = x.clone()
    x[0] = math.nan
    return x


FORWARD = in_words(
    {
        permuting_keys_and_values_changes_nothing: square(),
        shifting_every_logit_of_a_row_moves_lse_alone: long(),
        scaling_values_scales_o: square(),
        batches_do_not_mix: square(),
    }
)


def permuting_keys_and_values_permutes_their_gradients(
    rng: Generator, grad_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor
) -> Change:
    order = torch.randperm(k.shape[-2], generator=rng)

    def becomes(grad_q: Tensor, grad_k: Tensor, grad_v: Tensor) -> Results:
        return grad_q, grad_k[..., order, :], grad_v[..., order, :]

    return [grad_o, q, k[..., order, :], v[..., order, :], o, lse], becomes, EVERYTHING


def shifting_every_logit_of_a_row_changes_no_gradient(
    rng: Generator, grad_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor
) -> Change:
    vector = SHIFT * normal(rng, k.shape[-1])
    shift = (q.double() @ vector.double()) / math.sqrt(q.shape[-1])
    return [grad_o, q, k + vector, v, o, (lse + shift).float()], lambda *gradients: gradients, EVERYTHING


def scaling_grad_o_scales_every_gradient(
    rng: Generator, grad_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor
) -> Change:
    return [-grad_o / 2, q, k, v, o, lse], lambda *gradients: tuple(-x / 2 for x in gradients), EVERYTHING


def batches_do_not_mix_backward(rng: Generator, *tensors: Tensor) -> Change:
    """NaN in the first batch leaves the others as they were."""
    return [poisoned(x) for x in tensors], lambda *gradients: gradients, slice(1, None)


BACKWARD = in_words(
    {
        permuting_keys_and_values_permutes_their_gradients: square(),
        shifting_every_logit_of_a_row_changes_no_gradient: long(),
        scaling_grad_o_scales_every_gradient: square(),
        batches_do_not_mix_backward: square(),
    }
)
