"""The storages of a session by number, and the tensors that are views of them."""

import base64
import binascii

import torch

from assignment.protocol.program import View
from assignment.protocol.said import Telling

MAX_CONSTANT = 1 << 20  # bytes


class CannotFollow(Telling):
    """The program behaves differently here from where it was recorded, or is not allowed."""


class Storages:
    """The storages of a program by number."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        self._held: dict[int, torch.UntypedStorage] = {}

    def __contains__(self, number: int) -> bool:
        return number in self._held

    def __getitem__(self, number: int) -> torch.UntypedStorage:
        if number not in self._held:
            raise CannotFollow(
                "memory is used that no operation was seen to make, or that is gone: keep the tensor that holds it"
            )
        return self._held[number]

    def bind(self, number: int, tensor: torch.Tensor) -> None:
        """Bind a number to a tensor's storage.

        Raises CannotFollow if it is bound to another.
        """
        storage = tensor.untyped_storage()
        if self._held.setdefault(number, storage)._cdata != storage._cdata:
            raise CannotFollow(
                "an operation returned a copy on stand-ins and a view here, or the reverse: use clone() for a copy"
            )

    def free(self, number: int) -> int:
        """Release a storage, which other numbers may hold on to.

        Returns its implementation's address.
        """
        storage = self._held.pop(number, None)
        return 0 if storage is None else storage._cdata

    def constant(self, number: int, content: str) -> torch.Tensor:
        """Make memory with these bytes, in base64."""
        try:
            raw = bytearray(base64.b64decode(content, validate=True))
        except (binascii.Error, ValueError):
            raise CannotFollow("a constant that cannot be read") from None
        if number in self._held or len(raw) > MAX_CONSTANT:
            raise CannotFollow("a constant in memory that is taken, or a large one")
        tensor = torch.empty(len(raw), dtype=torch.uint8, device=self.device)
        tensor.copy_(torch.frombuffer(raw, dtype=torch.uint8) if raw else tensor)
        self.bind(number, tensor)
        return tensor

    def view(self, view: View) -> torch.Tensor:
        """Return the tensor that a view describes."""
        number, dtype, offset, sizes, strides = view
        kind = getattr(torch, dtype)
        storage = self[number]
        check_fits(view, storage.nbytes())
        return torch.empty(0, dtype=kind, device=self.device).set_(storage, offset, sizes, strides)


def laid_out(tensor: torch.Tensor, view: View) -> torch.Tensor:
    """Return the tensor with the strides of a view, copied if they differ.

    Some operations choose strides by device.
    """
    _, dtype, offset, sizes, strides = view
    found = View.of(tensor)
    if found[2:] == view[2:] or (found.dtype, found.sizes) != (dtype, sizes):
        return tensor
    last = offset + sum((n - 1) * stride for n, stride in zip(sizes, strides, strict=True)) if tensor.numel() else 0
    whole = torch.empty(last + 1, dtype=tensor.dtype, device=tensor.device)
    return whole.as_strided(sizes, strides, offset).copy_(tensor)


def check_fits(view: View, nbytes: int) -> None:
    """Raise CannotFollow if a view reaches beyond so many bytes."""
    _, dtype, offset, sizes, strides = view
    last = offset + sum((n - 1) * stride for n, stride in zip(sizes, strides, strict=True))
    if all(sizes) and (last + 1) * getattr(torch, dtype).itemsize > nbytes:
        raise CannotFollow("a tensor reaches beyond its memory: expected a view inside of it; look at as_strided")
