"""Operands of `tl.dot_scaled`: the formats of OCP Microscaling (MX) v1.0 as numbers.

Every element, times any scale, is exact in float64, and so is every product of two of them.
"""

import ml_dtypes
import numpy as np

from .elementwise import Handle
from .numerics import FP8E4NV

K, ROWS = -1, -2  # axes of an operand
_SCALES = {  # a scale's type, by the type of the block of scales
    np.dtype(np.uint8): np.dtype(ml_dtypes.float8_e8m0fnu),
    np.dtype(np.int8): np.dtype(ml_dtypes.float8_e8m0fnu),
    FP8E4NV: FP8E4NV,
}


def operand(elements: np.ndarray, scale: Handle | None, is_e2m1: bool, k_pack: bool) -> np.ndarray:
    """Return the numbers of an operand (…, rows, k) in float64.

    Args:
        elements: floats; for e2m1 uint8, two numbers a byte, the first in the lower half.
        scale: (…, rows, k / group), or None where all are 1; Triton has checked that a group is of 16 or 32.
        is_e2m1: whether elements are e2m1.
        k_pack: whether the two numbers of a byte are neighbours along k, not along the rows.

    Raises:
        ValueError: the scales are not those of the elements.
    """
    numbers = _unpacked(elements, K if k_pack else ROWS) if is_e2m1 else elements
    values = numbers.astype(np.float64)
    if scale is None:
        return values
    if scale.data.dtype not in _SCALES:
        found = scale.dtype
        raise ValueError(f"tl.dot_scaled: scales must be e8m0 in uint8, or fp8e4nv, got {found}")
    group = values.shape[K] // scale.data.shape[K]
    if scale.data.shape[:-1] != values.shape[:-1]:
        expected, found = [*values.shape[:-1], scale.data.shape[K]], list(scale.data.shape)
        raise ValueError(f"tl.dot_scaled: scales must be of shape {expected}, got {found}")
    return values * np.repeat(scale.data.view(_SCALES[scale.data.dtype]).astype(np.float64), group, axis=K)


def _unpacked(pairs: np.ndarray, axis: int) -> np.ndarray:
    """Return the e2m1 numbers of bytes that hold two neighbours along `axis` each."""
    shape = list(pairs.shape)
    shape[axis] *= 2
    halves = np.stack([pairs & np.uint8(15), pairs >> np.uint8(4)], axis)
    return halves.reshape(shape).view(ml_dtypes.float4_e2m1fn)
