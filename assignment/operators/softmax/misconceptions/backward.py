"""What can go wrong in softmax's backward pass."""

from collections.abc import Callable, Iterator

from torch import Tensor

from assignment.operators import rows
from assignment.operators.misconception import table
from assignment.operators.softmax.misconceptions.forward import sum_of


def with_dots(*dots: Callable[[Tensor, Tensor], Tensor]) -> rows.Variants:
    """The gradient with something else in place of Σ dy·y."""
    return rows.of_inputs(lambda grad_y, y: (y * (grad_y - dot(grad_y, y)) for dot in dots))


def dot_of_a_part(grad_y: Tensor, y: Tensor) -> Iterator[Tensor]:
    """The sum of the first tile, of the last one, or of each tile for itself."""
    for width in rows.narrower(y):
        by_tile = rows.tiles_of(grad_y * y, width).sum(-1)
        own = by_tile.repeat_interleave(width, -1)[..., : y.shape[-1]]
        yield from (y * (grad_y - dot) for dot in (by_tile[..., :1], by_tile[..., -1:], own))


def dot_in_16_bits(cast: rows.Round, grad_y: Tensor, y: Tensor) -> Iterator[Tensor]:
    for terms in (grad_y * y, cast(grad_y * y)):
        yield from (y * (grad_y - dot) for dot in rows.row_sums_in(cast, terms))
        yield y * (grad_y - cast(sum_of(terms)))


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
    "dot-missing": with_dots(lambda grad_y, y: 0 * y),
    "dot-added": with_dots(lambda grad_y, y: -sum_of(grad_y * y)),
    "y-not-in-front": rows.of_inputs(lambda grad_y, y: [grad_y - sum_of(grad_y * y)]),
    "the-diagonal-alone": with_dots(lambda grad_y, y: grad_y * y),
    "dot-without-y": with_dots(lambda grad_y, y: sum_of(grad_y), lambda grad_y, y: grad_y.mean(-1, keepdim=True)),
    "mean-for-dot": with_dots(lambda grad_y, y: (grad_y * y).mean(-1, keepdim=True)),
    "of-the-logarithm": rows.of_inputs(lambda grad_y, y: [grad_y - y * sum_of(grad_y)]),
    "dot-of-a-part": rows.of_inputs(dot_of_a_part),
    "dot-over-the-rows": rows.of_inputs(
        lambda grad_y, y: (y * (grad_y - (grad_y * y).sum(dim, keepdim=True)) for dim in range(y.ndim - 1))
    ),
    "dot-in-16-bits": rows.of_inputs_in_16_bits(dot_in_16_bits),
}
MISCONCEPTIONS = table("softmax", TOLD, MODELS, across=("dot-over-the-rows",))
