"""What can go wrong in softmax's backward pass."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from assignment.operators.misconception import Call, rounded, table
from assignment.operators.rows import Variants
from assignment.operators.softmax.misconceptions.forward_ways import narrower, sums_in_16_bits


def of_both(grad_x: Callable[[Tensor, Tensor], Tensor]) -> Variants:
    return lambda call: iter([[grad_x(*(tensor.double() for tensor in call.tensors))]])


def with_dots(dot: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """The gradient with something else in place of Σ dy·y."""
    return lambda grad_y, y: y * (grad_y - dot(grad_y, y))


def dot_of_a_part(call: Call) -> Iterator[Sequence[Tensor]]:
    """The sum of the first tile, of the last one, or of each tile for itself."""
    grad_y, y = (tensor.double() for tensor in call.tensors)
    for width in narrower(y):
        terms = grad_y * y
        padded_terms = torch.nn.functional.pad(terms, (0, -terms.shape[-1] % width))
        by_tile = padded_terms.unflatten(-1, (-1, width)).sum(-1)
        own = by_tile.repeat_interleave(width, -1)[..., : y.shape[-1]]
        for dot in (by_tile[..., :1], by_tile[..., -1:], own):
            yield [y * (grad_y - dot)]


def dot_in_16_bits(call: Call) -> Iterator[Sequence[Tensor]]:
    grad_y, y = (tensor.double() for tensor in call.tensors)
    if call.dtype != torch.float32:
        cast = rounded(call.dtype)
        for terms in (grad_y * y, cast(grad_y * y)):
            yield from ([y * (grad_y - dot)] for dot in sums_in_16_bits(terms, cast))
            yield [y * (grad_y - cast(terms.sum(-1, keepdim=True)))]


TOLD = """
dot-missing | the-gradient | Your grad_x equals y · grad_y, without the sum over the row | Each x acts on all of its
    row: what does that add?
dot-added | the-gradient | Your grad_x equals the one with Σ grad_y·y added instead of subtracted | More of one x means
    less of all other y: check the sign.
y-not-in-front | the-gradient | Your grad_x equals grad_y − Σ grad_y·y, without y in front | ∂y_k/∂x_j = y_k (δ_jk −
    y_j).
the-diagonal-alone | the-gradient | Your grad_x equals grad_y · y · (1 − y), as if each element were alone | Each x acts
    on all of its row, not on its own y only.
dot-without-y | the-gradient | Your grad_x equals the one with Σ grad_y, or its mean, in place of Σ grad_y·y | What is
    added up over the row?
mean-for-dot | the-gradient | Your grad_x equals the one with the mean of grad_y·y in place of the sum | The weights y
    add up to 1 already.
of-the-logarithm | the-gradient | Your grad_x equals that of the softmax's logarithm, grad_y − y · Σ grad_y | y is the
    power itself: what is its gradient?
dot-of-a-part | algorithm | Your grad_x equals the one with Σ grad_y·y over one tile of the row | A row may be wider
    than a tile: the sum is over all of them.
dot-over-the-rows | the-gradient | Your grad_x equals the one with Σ grad_y·y over another dimension than the last one |
    Along which axis is the sum taken?
dot-in-16-bits | what-goes-wrong | Your grad_x equals the one with Σ grad_y·y kept in the inputs' 16 bits | Cast what is
    loaded to float32 before it is multiplied, and keep the sum in it.
"""
MODELS = {
    "dot-missing": of_both(lambda grad_y, y: y * grad_y),
    "dot-added": of_both(with_dots(lambda grad_y, y: -(grad_y * y).sum(-1, keepdim=True))),
    "y-not-in-front": of_both(lambda grad_y, y: grad_y - (grad_y * y).sum(-1, keepdim=True)),
    "the-diagonal-alone": of_both(lambda grad_y, y: grad_y * y * (1 - y)),
    "dot-without-y": lambda call: (
        [y * (grad_y - dot)]
        for grad_y, y in [[tensor.double() for tensor in call.tensors]]
        for dot in (grad_y.sum(-1, keepdim=True), grad_y.mean(-1, keepdim=True))
    ),
    "mean-for-dot": of_both(with_dots(lambda grad_y, y: (grad_y * y).mean(-1, keepdim=True))),
    "of-the-logarithm": of_both(lambda grad_y, y: grad_y - y * grad_y.sum(-1, keepdim=True)),
    "dot-of-a-part": dot_of_a_part,
    "dot-over-the-rows": lambda call: (
        [y * (grad_y - (grad_y * y).sum(dim, keepdim=True))]
        for grad_y, y in [[tensor.double() for tensor in call.tensors]]
        for dim in range(y.ndim - 1)
    ),
    "dot-in-16-bits": dot_in_16_bits,
}
MISCONCEPTIONS = table("softmax", TOLD, MODELS, across=("dot-over-the-rows",))
