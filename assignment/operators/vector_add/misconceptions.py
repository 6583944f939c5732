"""What can go wrong in an addition."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from assignment.operators.misconception import Call, Misconception, Models

WRONG, TILE_SIZES = "handout/vector_add.md#what-goes-wrong", [1 << i for i in range(4, 14)]
MATH, ALGORITHM = "handout/vector_add.md#mathematics", "handout/vector_add.md#algorithm"


def of_both(z: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Call], Iterator[Sequence[Tensor]]]:
    return lambda call: iter([[z(*(tensor.double() for tensor in call.tensors))]])


def first_tile_again(call: Call) -> Iterator[Sequence[Tensor]]:
    """Every program adds the elements of the first."""
    x, y = (tensor.double() for tensor in call.tensors)
    z = (x + y).flatten()
    for size in (size for size in TILE_SIZES if size < z.numel()):
        yield [z[torch.arange(z.numel()) % size].view(x.shape)]


def neighbours(call: Call) -> Iterator[Sequence[Tensor]]:
    """y one element further, or one before."""
    x, y = (tensor.double() for tensor in call.tensors)
    for step in (1, -1):
        yield [x + y.flatten().roll(step).view(y.shape)]


MODELS = {
    "vector_add": Models(
        [
            Misconception("x-alone", "Your result equals x", "Where does y come in?", MATH, of_both(lambda x, y: x)),
            Misconception("y-alone", "Your result equals y", "Where does x come in?", MATH, of_both(lambda x, y: y)),
            Misconception(
                "x-twice", "Your result equals x + x", "Which pointer is loaded?", MATH, of_both(lambda x, y: x + x)
            ),
            Misconception(
                "y-twice", "Your result equals y + y", "Which pointer is loaded?", MATH, of_both(lambda x, y: y + y)
            ),
            Misconception(
                "a-difference", "Your result equals x − y", "Which sign has y?", MATH, of_both(lambda x, y: x - y)
            ),
            Misconception(
                "a-product", "Your result equals x · y", "Which operation is it?", MATH, of_both(lambda x, y: x * y)
            ),
            Misconception(
                "first-tile-again",
                "Your result is that of the first tile, again and again",
                "Which elements does a program load? Its program_id says.",
                ALGORITHM,
                first_tile_again,
            ),
            Misconception(
                "off-by-one",
                "Your result adds neighbours: y is one element off",
                "Where do the offsets of x and of y start?",
                ALGORITHM,
                neighbours,
            ),
        ],
        WRONG,
        n_inner=0,
    )
}
