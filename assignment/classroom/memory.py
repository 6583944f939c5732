"""What the oracle and the honest models say, remembered by the inputs: a class is judged on the same ones.

A grader's process has the seed of the whole class, so that every submission's cases have the same inputs, and the same
expected values and bounds. What decides these is the key: the function, its options, and every tensor's dtype, shape,
strides and bytes. Only the judge's process holds it, where no submission's code runs.
"""

import functools
import hashlib
import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import ParamSpec, TypeAlias, TypeVar, cast

import torch
from torch import Tensor

from tests import operators
from tests.compare import Expected

LIMIT = 768 << 20  # bytes; a whole grade fills 0.6 GiB
Given = ParamSpec("Given")
Returned = TypeVar("Returned", bound="Result")
Value = TypeVar("Value")
Result: TypeAlias = Tensor | Expected | tuple[Tensor, ...] | dict[str, Expected]  # of an oracle, or of a model
Kept = tuple[Result, list[tuple[Tensor, int]]]  # a result, and its tensors with their versions


class RunMemory:
    """Results by key; once it is full no more are kept, for a class comes by in the same order again and again."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit, self._kept = limit, dict[bytes, Kept]()
        self.nbytes = 0

    def remembering(self, function: Callable[Given, Returned]) -> Callable[Given, Returned]:
        """Return a function of tensors and options that computes what it has not computed before."""

        @functools.wraps(function)
        def remembered(*arguments: Given.args, **options: Given.kwargs) -> Returned:
            key = key_of(f"{function.__module__}.{function.__name__}", arguments, options)
            kept = self._kept.get(key)
            if kept is not None and all(tensor._version == version for tensor, version in kept[1]):
                return cast(Returned, dict(kept[0]) if isinstance(kept[0], dict) else kept[0])
            result = function(*arguments, **options)
            self._keep(key, dict(result) if isinstance(result, dict) else result)
            return result

        return remembered

    def _keep(self, key: bytes, result: Result) -> None:
        tensors = [*_tensors_of(result)]
        nbytes = sum(tensor.untyped_storage().nbytes() for tensor in tensors)
        if key not in self._kept and self.nbytes + nbytes > self._limit:
            return
        self.nbytes += nbytes if key not in self._kept else 0
        self._kept[key] = result, [(tensor, tensor._version) for tensor in tensors]


def key_of(name: str, arguments: Iterable[object], options: Mapping[str, object]) -> bytes:
    """Return 32 bytes that stand for a call: strides count, since they decide in which order a sum is made."""
    digest = hashlib.blake2b(name.encode(), digest_size=32)
    for part in _parts_of((*arguments, *sorted(options.items(), key=lambda option: option[0]))):
        digest.update(part)
    return digest.digest()


def _parts_of(value: Value) -> Iterator[bytes | memoryview]:
    """Yield what stands for a value: PyTorch shows of a large tensor a few elements alone, also in a list."""
    if isinstance(value, Tensor):
        yield repr((value.dtype, tuple(value.shape), value.stride())).encode()
        if value.numel():
            yield value.detach().reshape(-1).contiguous().view(torch.uint8).numpy().data
    elif isinstance(value, list | tuple):
        yield f"{len(value)} of ".encode()
        for part in value:
            yield from _parts_of(part)
    else:
        yield repr(value).encode() + b"\0"


def _tensors_of(result: Result) -> Iterator[Tensor]:
    """Yield the tensors of a result: of an oracle one or a tuple, of a model what is expected, by name."""
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, Expected):
        yield from (result.value, result.allowed)
    else:
        for part in result.values() if isinstance(result, dict) else result:
            yield from _tensors_of(part)


def install(memory: RunMemory) -> None:
    """Have every operator's oracle and models remember; before the checks are imported, which hold on to them."""
    for function in operators.functions().values():
        for owner, part in ((operators.of_oracle(function.oracle), "oracle"), (function, "models")):
            module = importlib.import_module(f"tests.{operators.operator_of(owner.name).name}.{part}")
            if not hasattr(getattr(module, function.oracle), "__wrapped__"):
                setattr(module, function.oracle, memory.remembering(getattr(module, function.oracle)))
