"""What can go wrong in softmax's forward pass."""

import math

from assignment.operators.misconception import table
from assignment.operators.softmax.misconceptions.forward_ways import (
    begun_with_nan,
    divided,
    limited,
    max_of_a_tile,
    not_rescaled,
    of_x,
    padded,
    padded_with_ones,
    part_of_the_row,
    powers_of,
    tile_by_tile,
    total_in_16_bits,
    with_max,
)

TOLD = """
no-max | mathematics | Your result equals exp(x) / Σ exp(x), which overflows, or divides 0 by 0 | Which number can be
    subtracted from a whole row without changing its softmax?
max-from-zero | what-goes-wrong | Your result equals the softmax whose maximum is at least 0 | With what does the
    maximum start? Rows may be negative everywhere, and 0 pads a row with something.
min-for-max | mathematics | Your result equals the softmax with the least element subtracted in place of the largest |
    What is the largest power that can come up?
softmax-not-divided | mathematics | Your result equals exp(x − max), not divided by its sum | A row of y adds up to 1.
the-logarithm | mathematics | Your result equals the logarithm of the softmax | y is the power itself.
softmax-base-2 | mathematics | Your result equals the softmax to the base 2 | exp2(x) is 2 to the x: which factor makes
    it exp?
negated | mathematics | Your result equals the softmax of −x | Which sign has x in the exponent?
mean-for-sum | mathematics | Your result equals exp(x − max) divided by its mean | By what are the powers divided?
over-the-rows | mathematics | Your result equals the softmax over another dimension than the last one | Along which axis
    are maximum and sum taken?
padding-in-the-sum | what-goes-wrong | Your result equals the softmax of rows that go on with zeros | What does a masked
    load put in the place of what is not there, and what does exp make of it?
padding-as-large-as-the-max | what-goes-wrong | Your result equals the softmax of rows that go on with their largest
    element | What does a masked load put in the place of what is not there, and what does exp make of it?
softmax-sum-not-rescaled | algorithm | Your result equals the softmax whose sum is not rescaled when a later tile has a
    larger maximum | What was added up under the old maximum is too large by a factor: which?
a-part-of-the-row | algorithm | Your result is divided by the sum of one tile of the row | A row may be wider than a
    tile: the sum is over all of them.
tile-by-tile | algorithm | Your result is a softmax of each tile of a row by itself | All tiles of a row share one
    maximum and one sum.
max-of-a-tile | algorithm | Your result equals the softmax with the maximum of one tile in place of the row's | A row
    may be wider than a tile: the maximum is over all of them.
begun-with-nan | what-goes-wrong | Your result is wrong in rows that begin with −∞, or have nothing else | −∞ − (−∞) is
    NaN: what is subtracted as long as nothing larger has come?
limited | what-goes-wrong | Your result equals the softmax of numbers that are cut off from below, such as −∞ | A large
    negative number in place of −∞ is still a number, and counts where a row has no larger ones.
softmax-sum-in-16-bits | what-goes-wrong | Your result equals the softmax whose sum is kept in the inputs' 16 bits | A
    sum in 16 bits stops growing early: keep it in float32.
"""
MODELS = {
    "no-max": with_max(lambda x: 0.0),
    "max-from-zero": with_max(lambda x: x.amax(-1, keepdim=True).clamp(min=0)),
    "min-for-max": with_max(lambda x: x.amin(-1, keepdim=True)),
    "softmax-not-divided": of_x(powers_of),
    "the-logarithm": of_x(lambda x: x.log_softmax(-1)),
    "softmax-base-2": of_x(lambda x: (x * math.log(2)).softmax(-1)),
    "negated": of_x(lambda x: (-x).softmax(-1)),
    "mean-for-sum": of_x(lambda x: divided(powers_of(x), powers_of(x).mean(-1, keepdim=True))),
    "over-the-rows": lambda call: ([call.tensors[0].double().softmax(dim)] for dim in range(call.tensors[0].ndim - 1)),
    "padding-in-the-sum": padded,
    "padding-as-large-as-the-max": padded_with_ones,
    "softmax-sum-not-rescaled": not_rescaled,
    "a-part-of-the-row": part_of_the_row,
    "tile-by-tile": tile_by_tile,
    "max-of-a-tile": max_of_a_tile,
    "begun-with-nan": begun_with_nan,
    "limited": limited,
    "softmax-sum-in-16-bits": total_in_16_bits,
}
MISCONCEPTIONS = table("softmax", TOLD, MODELS, across=("over-the-rows",))
