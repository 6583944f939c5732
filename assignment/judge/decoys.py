"""Stand-ins for the inputs of a call: what a recorder gets in their place.

They have the shapes, strides, dtypes, offsets and shared memory of the graded inputs. Their values are fresh normal
numbers from the operating system's entropy, of the same kind: to the nearest power of four as large in the middle, and
a few as large as the largest, so that host code that looks for large values goes the way that it would go. Integers
are any of as many bits. What a forward pass hands on is what it would be for these numbers. Structure, which an
operator's record names, is as it is: no other input's values can be told from it (tests/inputs.py has apart()).
"""

import contextlib
import math
import secrets
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from assignment.protocol.messages import Options
from assignment.protocol.wire import WHOLE_STORAGE_UP_TO
from tests import operators

FAR = 8  # times the usual size, from which on the largest values are of another kind
MANY = 64  # elements for one that is large
SAMPLED = 4_096  # elements
MAX_ELEMENTS = 1 << 24  # of what the oracle holds, up to which a backward pass gets what its forward one returns


def like(function: str, tensors: Sequence[Tensor], options: Options) -> list[Tensor]:
    """Return decoys for the inputs of a function."""
    rng = torch.Generator().manual_seed(secrets.randbits(63))
    storages: dict[int, torch.UntypedStorage] = {}
    decoys = []
    structure = operators.about(function)["structure"]
    for tensor in tensors:
        original = tensor.untyped_storage()
        if original._cdata not in storages:
            storages[original._cdata] = _empty(original.nbytes())
        view = tensor.new_empty(0).set_(
            storages[original._cdata], tensor.storage_offset(), tensor.shape, tensor.stride()
        )
        decoys.append(view)
    for place in sorted(range(len(decoys)), key=lambda place: place not in structure):  # memory of both keeps nothing
        _fill(decoys[place], _same if place in structure else _numbers(tensors[place]), rng, tensors[place])
    if function not in operators.functions():
        return decoys  # a peer's, which only needs the layout; or none is called
    with contextlib.suppress(RuntimeError, ValueError, IndexError):  # shapes that do not fit: a caller's mistake
        hand_on(function, decoys, options)
    return decoys


def hand_on(function: str, decoys: list[Tensor], options: Options) -> None:
    """Make consistent what a backward pass gets of the forward one: its results, for these decoys.

    What the backward pass does not get of the forward one's inputs is normal numbers.
    """
    about, named = operators.functions()[function], operators.named(function, decoys)
    if (left := about.left) and operators.operator_of(function).elements(named) <= MAX_ELEMENTS:
        forward = operators.functions()[about.forward]
        unseen = {name: torch.randn_like(named[form], dtype=torch.float64) for name, form in about.unseen}
        came = operators.oracle(forward.oracle)(*((named | unseen)[name] for name in forward.inputs), **options)
        came = came if isinstance(came, tuple) else (came,)
        for name, result in zip(forward.outputs, came, strict=True):
            if name in left:
                named[name].copy_(result)


def _empty(nbytes: int) -> torch.UntypedStorage:
    """Return memory that is NaN where no decoy lies, as that of the graded inputs is; a large one stays untouched."""
    storage = torch.UntypedStorage(nbytes)
    if nbytes <= WHOLE_STORAGE_UP_TO:
        torch.tensor([], dtype=torch.uint8).set_(storage).fill_(0xFF)
    return storage


def _fill(view: Tensor, numbers: Callable[..., Tensor], rng: torch.Generator, like: Tensor) -> None:
    """Write numbers; an element that is seen many times is written once."""
    sizes = [1 if not stride else size for size, stride in zip(view.shape, view.stride(), strict=True)]
    once = view.as_strided(sizes, view.stride(), view.storage_offset())
    try:
        once.copy_(numbers(once.shape, rng, like))
    except RuntimeError:  # a view that meets itself
        whole = view.new_empty(0).set_(view.untyped_storage())
        whole.copy_(numbers(whole.shape, rng, like))


def _numbers(like: Tensor) -> Callable[..., Tensor]:
    """Return what makes numbers of the same kind."""
    return _floats if like.is_floating_point() or like.is_complex() else _integers


def _same(shape: torch.Size, rng: torch.Generator, like: Tensor) -> Tensor:
    """Return the values as they are."""
    return like.as_strided(shape, like.stride(), like.storage_offset())


def kind(values: Tensor, rng: torch.Generator) -> tuple[float, float]:
    """Return how large values are in the middle, and at most, to powers of four: all that a decoy has of them.

    The middle of many is that of a sample.
    """
    sizes = (values.abs() if values.is_complex() else values).detach().float().abs().flatten()
    if sizes.numel() and not (largest := sizes.max()).isfinite():
        sizes = sizes[sizes.isfinite()]
        largest = sizes.max() if sizes.numel() else largest
    if not sizes.numel():
        return 1.0, 1.0
    some = sizes[torch.randint(sizes.numel(), (SAMPLED,), generator=rng)] if sizes.numel() > SAMPLED else sizes
    return _rounded(some.median().item()), _rounded(largest.item())


def _rounded(size: float) -> float:
    return 4.0 ** round(math.log(size, 4)) if size else 0.0


def _floats(shape: torch.Size, rng: torch.Generator, like: Tensor) -> Tensor:
    usual, largest = (min(size, torch.finfo(like.dtype).max / 4) for size in kind(like, rng))  # finite, four times over
    numbers = usual * torch.randn(shape, generator=rng).clamp(-3.9, 3.9)
    if largest > FAR * usual and numbers.numel():
        few = torch.randint(numbers.numel(), (1 + numbers.numel() // MANY,), generator=rng)
        numbers.view(-1)[few] = largest * torch.randn(few.shape, generator=rng).sign()
    return numbers


def _integers(shape: torch.Size, rng: torch.Generator, like: Tensor) -> Tensor:
    """Return integers of any sizes up to that of the largest, to the next power of two; negative if some are.

    The last byte is left out: as a scale of microscaling formats it is NaN.
    """
    low, high = (int(end) for end in like.to(torch.int64).aminmax()) if like.numel() else (0, 0)
    bound = 1 << max(high, -low - 1).bit_length()
    at_most = 2 if like.dtype == torch.bool else torch.iinfo(like.dtype).max
    return torch.randint(-bound if low < 0 else 0, min(bound, at_most), shape, generator=rng)
