"""What can go wrong in quantization by blocks, and in the product of block-scaled matrices."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from assignment.operators.matmul import misconceptions as product
from assignment.operators.misconception import Call, Model, Models, rounded, table
from tests.matmul_block_scaled import oracle
from tests.matmul_block_scaled.oracle import BLOCK

WRONG = "handout/matmul_block_scaled.md#what-goes-wrong"
Results = Iterator[Sequence[Tensor]]
OTHER_LARGEST = (240.0, 256.0, 464.0, 480.0, 127.0, 57344.0, 1.0)
in_bfloat16 = rounded(torch.bfloat16)


def block_of(call: Call) -> tuple[int, int]:
    return call.options.get("block", (1, BLOCK))


def divided(x: Tensor, scales: Tensor, block: tuple[int, int]) -> Tensor:
    return oracle.to_float8(x.double() / oracle.of_elements(scales, block, x))


def by_scales(scales: Callable[[Tensor, tuple[int, int]], Tensor]) -> Model:
    """Return the model of other scales, with the values that they give."""

    def model(call: Call) -> Results:
        (x,), block = call.tensors, block_of(call)
        yield [divided(x, scales(x, block), block), scales(x, block)]

    return model


def other_largest(call: Call) -> Results:
    (x,), block = call.tensors, block_of(call)
    right = oracle.scales_of(x, block)
    for largest in OTHER_LARGEST:
        scales = torch.where(right == 1.0, 1.0, right * oracle.LARGEST / largest)
        yield [divided(x, scales, block), scales]


def not_absolute(x: Tensor, block: tuple[int, int]) -> Tensor:
    return oracle.scales_of(x.clamp(min=0), block)


def of_rows(x: Tensor, block: tuple[int, int]) -> Tensor:
    scales = oracle.scales_of(x, (block[0], x.shape[1]))
    return scales.expand(-1, -(-x.shape[1] // block[1]))


def other_scales_alone(call: Call) -> Results:
    """The values are right, and perhaps those of the scales as they are stored."""
    (x,), block = call.tensors, block_of(call)
    values, scales = oracle.quantize_block_scaled(x, block)
    yield [values, in_bfloat16(scales)]
    yield [divided(x, in_bfloat16(scales), block), in_bfloat16(scales)]


def rounded_before(call: Call) -> Results:
    (x,), block = call.tensors, block_of(call)
    scales = oracle.scales_of(x, block)
    yield [divided(oracle.to_float8(x.double()), scales, block), scales]


def inverted(call: Call) -> Results:
    values, scales = oracle.quantize_block_scaled(call.tensors[0], block_of(call))
    yield [values, 1 / scales]


def of_product(model: Model) -> Model:
    """Return the model of a wrong product of the matrices that values and scales stand for."""

    def of_both(call: Call) -> Results:
        a, a_scales, b, b_scales = call.tensors
        of_a = a.double() * oracle.of_elements(a_scales, (1, BLOCK), a)
        of_b = b.double() * oracle.of_elements(b_scales, (BLOCK, BLOCK), b)
        yield from model(replace(call, tensors=[of_a, of_b.mT]))

    return of_both


def by_other_scales(others: Callable[[Tensor, Tensor], Iterator[tuple[Tensor, Tensor]]]) -> Model:
    """Return the model of a product by other scales of the same shapes."""

    def model(call: Call) -> Results:
        a, a_scales, b, b_scales = call.tensors
        for of_a, of_b in others(a_scales.double(), b_scales.double()):
            yield [oracle.matmul_block_scaled(a, of_a, b, of_b)]

    return model


def each_and_both(change: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Iterator[tuple[Tensor, Tensor]]]:
    """Return what changes the scales of a, of b, and of both."""

    def changed(a: Tensor, b: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        yield from ((change(a), b), (a, change(b)), (change(a), change(b)))

    return changed


def of_another_row(a: Tensor, b: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """The scale of the first row of a block of a; of the block of rows before or after, of b's or of a's scales."""
    yield a[torch.arange(len(a)) // BLOCK * BLOCK], b
    yield a[torch.arange(len(a)) // BLOCK], b
    for by in (1, -1):
        yield a, b.roll(by, 0)
        yield a.roll(by, 0), b
        yield a.roll(BLOCK * by, 0), b


def scaled_parts(call: Call) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each block's product, and what it is to be multiplied by."""
    a, a_scales, b, b_scales = (tensor.double() for tensor in call.tensors)
    columns = b_scales.repeat_interleave(BLOCK, 0)[: len(b)]
    for i, (of_a, of_b) in enumerate(zip(a.split(BLOCK, 1), b.split(BLOCK, 1), strict=True)):
        yield of_a @ of_b.mT, a_scales[:, i, None] * columns[:, i]


def sum_scaled(call: Call) -> Results:
    """The sum times the scales of a block; or with each block what was added before, too."""
    parts = [*scaled_parts(call)]
    total = torch.stack([part for part, _ in parts]).sum(0)
    yield from ([total * scales] for scales in (parts[-1][1], parts[0][1]))
    again = torch.zeros_like(total)
    for part, scales in parts:
        again = (again + part) * scales
    yield [again]


def summed_in_16_bits(call: Call) -> Results:
    for dtype in (torch.bfloat16, torch.float16):
        cast, total = rounded(dtype), torch.zeros(())
        for part, scales in scaled_parts(call):
            total = cast(total + part * scales)
        yield [total]


TOLD = """
another-largest | mathematics | Your scales are amax over another number than 448 |
    The largest number of float8 e4m3 is 448: the largest of a block becomes that.
amax-with-its-sign | what-goes-wrong | Your scales are those of the largest element, not of the
    largest absolute value | What is the largest of a block of negative numbers?
rounded-before-scaling | what-goes-wrong | Your values were rounded to float8 before they were divided |
    Divide in float32; the cast to float8 comes last.
scales-in-bfloat16 | what-goes-wrong | Your scales have the 8 bits of bfloat16 |
    Scales are float32 from the maximum to the store.
a-scale-for-a-row | mathematics | Your scales are those of whole rows | Each 128 columns have a scale of their own.
scales-inverted | mathematics | Your scales are 1 over what they should be | x is about values · scales.
part-of-the-terms | algorithm | Your result has the sum over some of the k terms only |
    Every block of terms is added, the last one too, however short it is.
same-tile-again | algorithm | Your result has the first block of a, of b or of both again in every step |
    The pointers, or offsets, of both move along k in every step.
sign-or-twice | mathematics | Your result has the other sign, or is twice as large | What is the sum begun with?
without-scales | mathematics | Your result lacks the scales of a, of b, or of both |
    Each block's product is multiplied by one scale of each.
by-scales-inverted | mathematics | Your result is divided by scales | Values times scales are what was quantized.
first-scales-again | algorithm | Your result has the scales of the first block of k in every step |
    The pointers of the scales move along k, too: one column for each block.
scales-of-another-row | mathematics | Your result has the scales of another row of a, or block of b |
    a has a scale for each row; b for each 128 rows.
sum-scaled | what-goes-wrong | Your result has scales that multiply the sum so far, not one block's product |
    Each product has scales of its own: multiply it before it is added.
by-scales-in-16-bits | what-goes-wrong | Your result has scales that were rounded to bfloat16 |
    Scales, and what they multiply, stay float32.
sum-in-16-bits | what-goes-wrong | Your result is added up in 16 bits |
    The sum is float32; the cast comes once, at the store.
"""
OF_QUANTIZATION: dict[str, Model] = {
    "another-largest": other_largest,
    "amax-with-its-sign": by_scales(not_absolute),
    "rounded-before-scaling": rounded_before,
    "scales-in-bfloat16": other_scales_alone,
    "a-scale-for-a-row": by_scales(of_rows),
    "scales-inverted": inverted,
}
OF_PRODUCT: dict[str, Model] = {
    "part-of-the-terms": of_product(product.some_terms),
    "same-tile-again": of_product(product.one_tile_again),
    "sign-or-twice": lambda call: ([by * oracle.matmul_block_scaled(*call.tensors)] for by in (-1, 2)),
    "without-scales": by_other_scales(each_and_both(torch.ones_like)),
    "by-scales-inverted": by_other_scales(each_and_both(torch.reciprocal)),
    "first-scales-again": by_other_scales(each_and_both(lambda scales: scales[:, :1].expand_as(scales))),
    "scales-of-another-row": by_other_scales(of_another_row),
    "sum-scaled": sum_scaled,
    "by-scales-in-16-bits": by_other_scales(each_and_both(in_bfloat16)),
    "sum-in-16-bits": summed_in_16_bits,
}
KNOWN = table("matmul_block_scaled", TOLD, OF_QUANTIZATION | OF_PRODUCT, prefix="block_scaled-")
N_FIRST = len(OF_QUANTIZATION)
MODELS = {
    "quantize_block_scaled": Models(KNOWN[:N_FIRST], WRONG, n_inner=2),
    "matmul_block_scaled": Models(KNOWN[N_FIRST:], WRONG, n_inner=2),
}
