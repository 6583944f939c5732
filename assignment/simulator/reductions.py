"""`tl.reduce` and `tl.associative_scan`, in trees that a GPU may take, and `tl.map_elementwise`.

A combining function is called on many elements at once, as blocks. One that branches on its operands, which the
compiler allows because it only sees scalars, is called element by element instead. The tree is drawn by the call's
seed; a function whose results depend on it is told.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
import triton.language as tl

from assignment.whose import theirs

from . import calls
from .draws import Tree
from .elementwise import Handle
from .faults import LEFT_OPEN, at, place
from .kernel_values import KernelFunction, KernelValue, static
from .numerics import numpy_type
from .semantic import semantic

Arrays = list[np.ndarray]
Blocks: TypeAlias = tl.tensor | tuple[tl.tensor, ...]
Combine = Callable[[Arrays, Arrays], Arrays]
_COMPARED = 4  # columns of a block whose results in two trees are compared
_SAME = 1e-6  # the share by which results in float64 may differ, of functions with constants in float32


class BlockTruthError(TypeError):
    """A block of several elements was used where one truth value is needed."""


def _standard(*names: str) -> list[KernelFunction]:
    return [f for f in (getattr(tl.standard, name, None) for name in names) if f is not None]


# the hardware's max and min ignore NaN
_UFUNC = [
    (np.add, _standard("_sum_combine")),
    (np.multiply, _standard("_prod_combine")),
    (np.fmax, _standard("_elementwise_max")),
    (np.fmin, _standard("_elementwise_min")),
    (np.bitwise_xor, _standard("_xor_combine")),
    (np.bitwise_or, _standard("_or_combine")),
]
_ARG = [
    (np.argmax, _standard("_argmax_combine_tie_break_left", "_argmax_combine_tie_break_fast")),
    (np.argmin, _standard("_argmin_combine_tie_break_left", "_argmin_combine_tie_break_fast")),
]

_ANY_OF_TIES = _standard("_argmax_combine_tie_break_fast", "_argmin_combine_tie_break_fast")


def reduce(
    input: Blocks,
    axis: int | tl.constexpr | None,
    combine_fn: KernelFunction,
    keep_dims: bool | tl.constexpr = False,
    _semantic: None = None,
    _generator: None = None,
) -> Blocks:
    """Evaluate `tl.reduce`: `combine_fn` over the elements along `axis` of the blocks."""
    blocks = [input] if isinstance(input, tl.tensor) else list(input)
    axis, keep_dims = static(axis), static(keep_dims)
    if not all(block.type.is_block() for block in blocks):
        raise TypeError(f"a reduction such as tl.sum takes a block, got a scalar, {blocks[0].type}")
    arrays = [t.handle.data for t in blocks]
    rank = arrays[0].ndim
    if axis is None:
        arrays = [x.reshape(-1) for x in arrays]
    elif not isinstance(axis, int):
        raise TypeError(f"a reduction's axis is an integer, got {axis!r}")
    elif not -rank <= axis < rank:
        raise ValueError(f"reduction axis {axis} does not exist in a block of rank {rank}")
    results = _reduce([np.moveaxis(x, axis or 0, 0) for x in arrays], combine_fn, [t.dtype for t in blocks])
    if keep_dims:
        results = [x.reshape((1,) * rank) if axis is None else np.expand_dims(x, axis) for x in results]
    return _as_tensors(results, blocks, input)


def associative_scan(
    input: Blocks,
    axis: int | tl.constexpr | None,
    combine_fn: KernelFunction,
    reverse: bool | tl.constexpr = False,
    _semantic: None = None,
    _generator: None = None,
) -> Blocks:
    """Evaluate `tl.associative_scan`: the running `combine_fn` along `axis` of the blocks."""
    blocks = [input] if isinstance(input, tl.tensor) else list(input)
    axis = static(axis)
    arrays = [theirs(np.moveaxis, t.handle.data, axis, 0) for t in blocks]
    if static(reverse):
        arrays = [x[::-1] for x in arrays]
    arrays = _in_tree(_scan, arrays, combine_fn, [t.dtype for t in blocks])
    if static(reverse):
        arrays = [x[::-1] for x in arrays]
    return _as_tensors([np.moveaxis(x, 0, axis) for x in arrays], blocks, input)


def map_elementwise(
    scalar_fn: KernelFunction,
    *args: tl.tensor,
    pack: int | tl.constexpr = 1,
    _semantic: None = None,
    _generator: None = None,
) -> Blocks:
    """Evaluate `tl.map_elementwise`: a function of scalars on blocks, `pack` elements a call."""
    pack, types = static(pack), [t.dtype for t in args]
    arrays = theirs(np.broadcast_arrays, *(t.handle.data for t in args))
    groups = zip(*(x.reshape(-1, pack) for x in arrays), strict=True)
    calls = []
    for group in groups:
        result = theirs(
            scalar_fn, *(_tensor(x[i : i + 1], ty) for x, ty in zip(group, types, strict=True) for i in range(pack))
        )
        calls.append(_several(result))
    outputs = [
        _tensor(
            np.concatenate([_array(c[k + i]) for c in calls for i in range(pack)]).reshape(arrays[0].shape), first.dtype
        )
        for k, first in list(enumerate(calls[0]))[::pack]
    ]
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _reduce(arrays: Arrays, combine_fn: KernelFunction, types: Sequence[tl.dtype]) -> Arrays:
    """Reduce over the first axis."""
    argument = next((f for f, fns in _ARG if any(fn is combine_fn for fn in fns)), None)
    if argument is not None and not np.isnan(arrays[0]).any():
        index = argument(arrays[0], axis=0)[None]
        if any(fn is combine_fn for fn in _ANY_OF_TIES) and calls.current().draws.tree(len(arrays[0])).is_swapped:
            index = len(arrays[0]) - 1 - argument(arrays[0][::-1], axis=0)[None]
        return [np.take_along_axis(x, index, 0)[0] for x in arrays]
    ufunc = _ufunc(combine_fn, arrays[0].dtype)
    if ufunc is not None and (ufunc is not np.add or arrays[0].dtype.kind in "iu"):
        return [ufunc.reduce(arrays[0], axis=0, dtype=arrays[0].dtype)]
    return _in_tree(_fold, arrays, combine_fn, types)


def _in_tree(function: Callable, arrays: Arrays, combine_fn: KernelFunction, types: Sequence[tl.dtype]) -> Arrays:
    """Return what `function` makes of the arrays in the tree of this call, and tell of what depends on it."""
    tree = calls.current().draws.tree(len(arrays[0]))
    combine, ufunc = _combine(combine_fn, types), _ufunc(combine_fn, arrays[0].dtype)
    if ufunc is not None and function is _fold and arrays[0].dtype == np.float32:
        return [_folded(ufunc, arrays[0], tree.wraps * tree.run)]
    if ufunc is not None:
        return function(arrays, combine, Tree((), tree.wraps * tree.run, 1, is_swapped=False))
    try:
        _compare_trees(function, arrays, combine_fn, types, tree)
        return function(arrays, combine, tree)
    except BlockTruthError:
        return function(arrays, _element_by_element(combine), tree)


def _fold(arrays: Arrays, combine: Combine, tree: Tree) -> Arrays:
    """Combine the elements of each thread one by one, then those of all threads by halves."""
    if tree.is_swapped:
        given = combine
        combine = lambda left, right: given(right, left)  # noqa: E731
    shape = arrays[0].shape[1:]
    if tree.bits:
        axes = [*tree.bits, *range(len(tree.bits), len(tree.bits) + len(shape))]
        arrays = [x.reshape(*[2] * len(tree.bits), *shape).transpose(axes) for x in arrays]
    registers = [x.reshape(tree.wraps, -1, tree.run, *shape) for x in arrays]
    arrays = [x[0, :, 0] for x in registers]
    for wrap, i in list(np.ndindex(tree.wraps, tree.run))[1:]:
        arrays = combine(arrays, [x[wrap, :, i] for x in registers])
    while len(arrays[0]) > 1:
        half = len(arrays[0]) // 2
        arrays = combine([x[:half] for x in arrays], [x[half:] for x in arrays])
    return [x[0] for x in arrays]


def _folded(ufunc: np.ufunc, x: np.ndarray, n_registers: int) -> np.ndarray:
    """Combine as `_fold` does, the elements of each thread by NumPy's own loop."""
    x = ufunc.reduce(x.reshape(n_registers, -1, *x.shape[1:]), axis=0)
    while len(x) > 1:
        half = len(x) // 2
        x = ufunc(x[:half], x[half:])
    return x[0]


def _scan(arrays: Arrays, combine: Combine, tree: Tree) -> Arrays:
    """Combine the elements of each thread one by one, then each thread's last one with those 1, 2, 4 ... before it."""
    shape = arrays[0].shape
    own = [x.reshape(-1, tree.run, *shape[1:]) for x in arrays]
    steps = [[x[:, 0] for x in own]]
    for i in range(1, tree.run):
        steps.append(combine(steps[-1], [x[:, i] for x in own]))
    totals, distance = steps.pop(), 1
    while distance < len(totals[0]):
        totals = _after(totals, totals, distance, combine)
        distance *= 2
    steps = [_after(totals, step, 1, combine) for step in steps]
    return [
        np.stack(each, axis=1).reshape(x.shape)
        for each, x in zip(zip(*steps, totals, strict=True), arrays, strict=True)
    ]


def _after(totals: Arrays, arrays: Arrays, distance: int, combine: Combine) -> Arrays:
    """Combine each element with the total so many before it; the first ones have none."""
    if distance >= len(totals[0]):
        return arrays
    before = [np.concatenate([x[:distance], x[:-distance]]) for x in totals]
    together = combine(before, arrays)
    return [np.concatenate([x[:distance], y[distance:]]) for x, y in zip(arrays, together, strict=True)]


def _compare_trees(
    function: Callable, arrays: Arrays, combine_fn: KernelFunction, types: Sequence[tl.dtype], tree: Tree
) -> None:
    """Tell of a function whose results in float64 depend on the tree, at the first use of a line."""
    call, where = calls.current(), place()
    if where in call.compared or len(arrays) > 1:  # several values may say one thing in several ways
        return
    call.compared.add(where)
    wide = tl.float64 if types[0].is_floating() else types[0]
    few = arrays[0].reshape(len(arrays[0]), -1)[:, :_COMPARED].astype(numpy_type(wide))
    combine = _combine(combine_fn, [wide])
    with np.errstate(all="ignore"), suppress(Exception):  # a function of other types
        (one,), (other,) = (function([few], combine, each) for each in (tree, Tree((), 1, 1, is_swapped=False)))
        largest = np.max(np.abs(few[np.isfinite(few)]), initial=0.0)
        apart = np.abs(one - other) > _SAME * np.maximum(np.abs(one), largest)
        if apart.any():
            first = tuple(np.argwhere(apart)[0])
            call.warn(
                f"not associative: {combine_fn.__name__} gives {one[first]:.6g} in one tree and {other[first]:.6g} in "
                f"another, of the same elements\n{at(where)}\n  nothing says in which tree a GPU combines them "
                f"{LEFT_OPEN}: f(f(a, b), c) must be f(a, f(b, c)); of tl.reduce also f(a, b) f(b, a)",
                (where, "tree"),
            )


def _ufunc(combine_fn: KernelFunction, dtype: np.dtype) -> np.ufunc | None:
    ufunc = next((ufunc for ufunc, fns in _UFUNC if any(fn is combine_fn for fn in fns)), None)
    return np.bitwise_xor if ufunc is np.add and dtype.kind == "b" else ufunc  # sums of one bit wrap


def _several(result: KernelValue) -> list[Any]:
    """Return what a function of the kernel's returned as a list."""
    results = list(result) if isinstance(result, tl.tuple | tuple | list) else [result]
    if not all(isinstance(x, tl.tensor | tl.constexpr | bool | int | float) for x in results):
        raise TypeError(f"expected a function that returns a value or a tuple of values, got {result!r}")
    return [theirs(semantic.to_tensor, x) for x in results]


def _combine(combine_fn: KernelFunction, types: Sequence[tl.dtype]) -> Combine:
    """Return `combine_fn`, a function of Triton tensors, as a function of arrays."""
    ufunc = _ufunc(combine_fn, numpy_type(types[0]))
    if ufunc is not None:
        return lambda left, right: [ufunc(left[0], right[0])]

    def combine(left: Arrays, right: Arrays) -> Arrays:
        args = [_tensor(x, ty) for side in (left, right) for x, ty in zip(side, types, strict=True)]
        result = theirs(combine_fn, *args)
        results = _several(result)
        return [np.broadcast_to(_array(r), x.shape).astype(x.dtype) for r, x in zip(results, left, strict=True)]

    return combine


def _element_by_element(combine: Combine) -> Combine:
    def each(left: Arrays, right: Arrays) -> Arrays:
        out = [np.empty(x.shape, x.dtype) for x in left]
        for i in np.ndindex(left[0].shape):
            values = combine([x[i].reshape(1) for x in left], [x[i].reshape(1) for x in right])
            for x, value in zip(out, values, strict=True):
                x[i] = value.item()
        return out

    return each


def _array(result: KernelValue) -> np.ndarray:
    return result.handle.data if isinstance(result, tl.tensor) else np.asarray(static(result))


def _tensor(data: np.ndarray, ty: tl.dtype) -> tl.tensor:
    """Return a block, or a scalar if there is one element in all."""
    if data.size == 1:
        return tl.tensor(Handle(data.reshape(1), ty), ty)
    return tl.tensor(Handle(data, ty), tl.block_type(ty, list(data.shape)))


def _as_tensors(arrays: Arrays, blocks: Sequence[tl.tensor], input: Blocks) -> Blocks:
    """Return results as Triton tensors: one for one block, else a tuple."""
    tensors = []
    for data, block in zip(arrays, blocks, strict=True):
        ty = tl.block_type(block.dtype, list(data.shape)) if data.ndim else block.dtype
        tensors.append(tl.tensor(Handle(np.atleast_1d(data), block.dtype), ty))
    return tensors[0] if isinstance(input, tl.tensor) else tuple(tensors)
