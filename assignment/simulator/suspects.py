"""Likely causes of an out-of-bounds access: named only if all lanes agree and none is simpler."""

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .faults import Program
from .layout import Layout

_ENOUGH = 16  # lanes, which do not agree by chance
_ROWS = 8  # that the lanes of a block of two dimensions lie in, at least
_MOST_DIMENSIONS, _MOST_ELEMENTS = 6, 1 << 48
_TILE = 16  # the smallest that anybody uses: what is a multiple of it may end with a tile
_BOUNDARY = re.compile(r"boundary_check\s*=\s*\(\s*([01])\s*,?\s*\)")

Strides = tuple[int, ...]


@dataclass(frozen=True)
class SuspectAccess:
    """A load or a store that reaches outside its tensor."""

    name: str  # of the tensor
    layout: Layout
    offsets: np.ndarray  # of all active lanes, in elements from the tensor's first: int64 (lanes,)
    others: Sequence[tuple[str, Layout]]  # the launch's other tensors
    program: Program
    grid: Program
    line: str  # the source


def likely(access: SuspectAccess) -> str:
    """Return the likeliest cause on its own line, or ""; "" for tensors that cannot be confused."""
    layouts = [access.layout, *(layout for _, layout in access.others)]
    if any(len(layout.shape) > _MOST_DIMENSIONS or math.prod(layout.shape) > _MOST_ELEMENTS for layout in layouts):
        return ""
    said = _swapped_axes(access) or _boundary_check(access) or _no_mask_along_rows(access) or _strides(access)
    return f"\n  {said}" if said else ""


def _swapped_axes(access: SuspectAccess) -> str:
    """Return the hint that a program id exceeds the batches, which another grid axis counts."""
    layout, program, grid = access.layout, access.program, access.grid
    if len(layout.shape) < 2 or not _is_widest_first(layout):
        return ""
    n_batches, stride = layout.shape[0], layout.strides[0]
    batches = access.offsets // stride
    batch = int(batches[0])
    if batch < n_batches or (batches != batch).any() or batch not in program:
        return ""
    axis = program.index(batch)
    if grid[axis] <= n_batches or n_batches < 2:
        return ""
    counting = [other for other in range(3) if other != axis and grid[other] == n_batches]
    swapped = [access.offsets + (program[other] - batch) * stride for other in counting]
    if all(_indices(offsets, layout.shape, layout.strides) is None for offsets in swapped):
        return ""
    return (
        f"program_id({axis}) = {batch} is taken for an index along axis 0 of {access.name}, which is {n_batches} long, "
        f"and the grid is {grid}: are its axes swapped?"
    )


def _is_widest_first(layout: Layout) -> bool:
    return layout.strides[0] > 0 and layout.strides[0] >= max(layout.strides)


def _boundary_check(access: SuspectAccess) -> str:
    """Return the hint that a block pointer's other axis ends within a tile."""
    found, shape = _BOUNDARY.search(access.line), access.layout.shape
    if not found or len(shape) < 2 or len(set(access.offsets // (access.layout.strides[-2] or 1))) < _ROWS:
        return ""
    checked = int(found[1])
    axis = len(shape) - 2 + (1 - checked)
    if shape[axis] % _TILE == 0:
        return ""
    return (
        f"{found[0]} looks at axis {checked} of the block alone, and axis {axis} of {access.name}, {shape[axis]} long, "
        "ends within a tile: boundary_check=(0, 1)"
    )


def _no_mask_along_rows(access: SuspectAccess) -> str:
    """Return the hint that the lanes of each row go on where it ends, over the rows that follow."""
    shape, strides = access.layout.shape, access.layout.strides
    if len(shape) < 2 or not strides[-1] or access.offsets.size < _ENOUGH:
        return ""
    breaks = np.flatnonzero(np.diff(access.offsets) != strides[-1]) + 1
    width = int(breaks[0]) if breaks.size else access.offsets.size
    is_of_rows = breaks.size and not (breaks % width).any() and access.offsets.size == (breaks.size + 1) * width
    if width <= shape[-1] or not is_of_rows or (np.diff(access.offsets[::width]) != strides[-2]).any():
        return ""
    axis = len(shape) - 1
    return (
        f"every row of the block is {width} wide, and axis {axis} of {access.name} ends after {shape[axis]}: "
        "a mask along that axis is missing"
    )


def _strides(access: SuspectAccess) -> str:
    """Return the hint that strides of another tensor, or in another order, put all lanes inside."""
    if access.offsets.size < _ENOUGH or _is_mere_overrun(access):
        return ""
    own = access.layout.strides
    fitting = set()
    for strides in dict.fromkeys(_candidates(access)):
        indices = _indices(access.offsets, access.layout.shape, strides)
        if indices is not None and _are_of_a_block(indices) and _is_of_program(indices, access):
            fitting.add(tuple((i, t) for i, t in enumerate(strides) if t != own[i] and indices[:, i].any()))
    if len(fitting) != 1 or not (instead := fitting.pop()):
        return ""
    used = " and ".join(f"{stride} along axis {axis}" for axis, stride in instead)
    right = " and ".join(str(own[axis]) for axis, _ in instead)
    whose = f" (those of {', '.join(owners)})" if (owners := _owners(access, instead)) else ""
    return f"all of it lies inside with strides {used}{whose} in place of {right}"


def _owners(access: SuspectAccess, instead: Sequence[tuple[int, int]]) -> list[str]:
    """Return whose strides these are; a tensor is mostly taken for a contiguous one."""
    shape = access.layout.shape
    if all(_contiguous(shape)[axis] == stride for axis, stride in instead):
        return ["a contiguous tensor"]
    alike = [(name, other.strides) for name, other in access.others if len(other.shape) == len(shape)]
    return [name for name, strides in alike if all(strides[axis] == stride for axis, stride in instead)]


def _candidates(access: SuspectAccess) -> Iterator[Strides]:
    """Yield strides that may have been used by mistake."""
    own, n_dims = access.layout.strides, len(access.layout.shape)
    others = [other.strides for _, other in access.others if len(other.shape) == n_dims]
    yield from others
    yield _contiguous(access.layout.shape)
    for strides in others:
        yield from ((*own[:axis], strides[axis], *own[axis + 1 :]) for axis in range(n_dims))
    for i, j in itertools.combinations(range(n_dims), 2):
        yield tuple(own[{i: j, j: i}.get(axis, axis)] for axis in range(n_dims))


def _contiguous(shape: Sequence[int]) -> Strides:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _are_of_a_block(indices: np.ndarray) -> bool:
    """Return whether the indices along each axis are consecutive."""
    return all(_follow_one_another(np.unique(along)) for along in indices.T)


def _follow_one_another(numbers: np.ndarray) -> bool:
    return int(numbers[-1] - numbers[0]) + 1 == numbers.size


def _indices(offsets: np.ndarray, shape: Sequence[int], strides: Strides) -> np.ndarray | None:
    """Return the index of every lane, (lanes, dimensions); None where one lies outside."""
    indices, rest = np.zeros((offsets.size, len(shape)), np.int64), offsets.copy()
    if (rest < 0).any():
        return None
    for i in sorted((i for i, size in enumerate(shape) if size > 1 and strides[i]), key=lambda i: -strides[i]):
        indices[:, i] = np.minimum(rest // strides[i], shape[i] - 1)
        rest -= indices[:, i] * strides[i]
    return None if rest.any() else indices


def _is_of_program(indices: np.ndarray, access: SuspectAccess) -> bool:
    """Return whether the batch, where there are several, is one that the program's id names."""
    if indices.shape[1] < 3 or access.layout.shape[0] == 1:
        return True
    batches = set(indices[:, 0].tolist())
    return len(batches) == 1 and (batches <= set(access.program) or indices.shape[1] > 3)


def _is_mere_overrun(access: SuspectAccess) -> bool:
    """Return whether consecutive rows of the batch run past the last one: a mask is missing."""
    shape, strides = access.layout.shape, access.layout.strides
    if len(shape) < 2:
        return not shape or not (access.offsets % (strides[0] or 1)).any()
    if (access.offsets < 0).any() or not _is_widest_first(access.layout):
        return False
    rest = access.offsets
    batch: list[int] = []
    for size, stride in zip(shape[:-2], strides[:-2], strict=True):
        index = np.minimum(rest // (stride or 1), size - 1)
        if (index != index[0]).any():
            return False
        batch.append(int(index[0]))
        rest = rest - index * stride
    row, col = np.divmod(rest, strides[-2] or 1)
    rows, cols = np.unique(row), np.unique(col)
    if not (_follow_one_another(rows) and _follow_one_another(cols) and rows.size * cols.size == rest.size):
        return False
    if rows[-1] < shape[-2] or rows[0] % _TILE:  # where tiles of rows begin
        return False
    is_told_by_program = len(batch) == 1 and shape[0] > 1 and sum(size > 1 for size in access.grid) > 1
    return not is_told_by_program or batch[0] in access.program
