"""Tensors that are read through wrong strides: those of another tensor, or of a contiguous one."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from assignment.operators.misconception import Call


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    return torch.empty(shape, device="meta").stride()


def misread(call: Call, names: Sequence[str], n_inner: int) -> Iterator[tuple[str, list[Tensor]]]:
    """Yield a description, and the tensors as they then look: with their dimensions, or one batch.

    n_inner: dimensions that are not batch, of the tensor with the most.
    """
    yield from _misread(call, names)
    main = max(call.tensors, key=lambda tensor: tensor.ndim)
    if (n_batch := main.ndim - n_inner) > 1:
        flat = [t.flatten(0, n_batch - 1) if t.shape[:n_batch] == main.shape[:n_batch] else t for t in call.tensors]
        for words, tensors in _misread(replace(call, tensors=flat), names):
            yield (words, [seen.reshape(t.shape) for seen, t in zip(tensors, call.tensors, strict=True)])


def _misread(call: Call, names: Sequence[str]) -> Iterator[tuple[str, list[Tensor]]]:
    for i, (name, tensor) in enumerate(zip(names, call.tensors, strict=True)):
        if tensor.ndim > 3:
            swapped = tensor.transpose(0, -3).reshape(tensor.shape)
            yield (
                f"{name}'s batch dimensions are in another order",
                [*call.tensors[:i], swapped, *call.tensors[i + 1 :]],
            )
        for words, strides in wrong_strides(i, names, call.tensors):
            if strides != tensor.stride() and (seen := at(tensor, strides)) is not None:
                yield words.format(name), [*call.tensors[:i], seen, *call.tensors[i + 1 :]]


def wrong_strides(i: int, names: Sequence[str], tensors: Sequence[Tensor]) -> Iterator[tuple[str, tuple[int, ...]]]:
    tensor = tensors[i]
    right, packed = tensor.stride(), contiguous(tensor.shape)
    yield "{} is read as if it were contiguous", packed
    if tensor.ndim:
        yield "{} is read as if its last stride were 1", (*right[:-1], 1)
    if tensor.ndim > 1:
        yield (
            "{} is read as if its rows followed one another: a row stride of d",
            (*right[:-2], packed[-2], right[-1]),
        )
        yield "{}'s last two strides are swapped", (*right[:-2], right[-1], right[-2])
        yield ("{} is read as if its batch stride were that of a contiguous tensor", (*packed[:-2], *right[-2:]))
        yield ("{}'s batch stride is taken for that of a contiguous tensor", (*packed[:-1], right[-1]))
    if tensor.ndim > 2:
        yield "{} is read from the first entry of the batch in all", (0,) * (tensor.ndim - 2) + right[-2:]
        yield ("{}'s strides of batch and row are swapped", (*right[:-3], right[-2], right[-3], right[-1]))
    others = zip(tensors, names, strict=True)
    # q's strides may be grad_o's too
    for other, name in sorted(others, key=lambda pair: pair[1].startswith("grad")):
        if other.ndim == tensor.ndim:
            yield f"{{}} is read with {name}'s strides", other.stride()
            for axis in range(tensor.ndim if tensor.ndim > 1 else 0):
                mixed = (*right[:axis], other.stride(axis), *right[axis + 1 :])
                yield f"one of {{}}'s strides is {name}'s", mixed
            if tensor.ndim > 2:
                yield f"one of {{}}'s strides is {name}'s", (*other.stride()[:-2], *right[-2:])


def at(tensor: Tensor, strides: tuple[int, ...]) -> Tensor | None:
    """Return the tensor with other strides, if its memory reaches so far."""
    last = tensor.storage_offset() + sum((n - 1) * stride for n, stride in zip(tensor.shape, strides, strict=True))
    if last >= tensor.untyped_storage().nbytes() // tensor.itemsize:
        return None
    return tensor.as_strided(tensor.shape, strides)


def misplaced(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Yield contiguous results stored through the strides of an input of the same shape."""
    for i, output in enumerate(outputs):
        for strides in dict.fromkeys(x.stride() for x in inputs if x.shape == output.shape):
            stored = output.new_empty(output.numel())
            if strides != contiguous(output.shape) and _fills(output.shape, strides):
                stored.as_strided(output.shape, strides).copy_(output)
                yield [*outputs[:i], stored.view(output.shape), *outputs[i + 1 :]]


def _fills(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether the strides give every element a place, and leave none over."""
    step = 1
    for stride, size in sorted((t, n) for t, n in zip(strides, shape, strict=True) if n > 1):
        if stride != step:
            return False
        step *= size
    return True


def mislaid(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Yield results stored as contiguous and read through the strides of an input."""
    for i, output in enumerate(outputs):
        for strides in dict.fromkeys(x.stride() for x in inputs if x.shape == output.shape):
            dense = torch.empty_strided(output.shape, strides, dtype=output.dtype) if 0 not in strides else None
            if dense is not None and dense.untyped_storage().nbytes() == output.numel() * output.itemsize:
                seen = output.contiguous().as_strided(output.shape, strides)
                yield [*outputs[:i], seen, *outputs[i + 1 :]]
