"""The wire between grader and worker: frames of a JSON header and the tensors it speaks of. Never pickle.

    frame = magic (4 bytes) | length of the header (u32) | length of the payload (u64) | header | payload

The header is JSON in UTF-8. Under "tensors" it describes each tensor as a view (dtype, shape, strides, offset) of a
storage, and under "storages" each storage as a size and the runs of bytes that were sent; the payload holds those runs
in the safetensors format. Views, overlaps and shared storages thus arrive as they are, and a view that strides over
gigabytes costs only what it touches.
"""

import itertools
import json
import socket
import struct
import time
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

MAGIC = b"K336"
PREFIX = struct.Struct("<4sIQ")
MAX_HEADER = 4 << 20
MAX_PAYLOAD = 1 << 30
WHOLE_STORAGE_UP_TO = 64 << 20  # bytes; of a larger storage only what the views touch is sent
MAX_RUNS = 1 << 16
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool, torch.uint8),
        *(torch.int8, torch.int16, torch.int32, torch.int64, torch.complex64, torch.complex128),
    )
}


class ProtocolError(Exception):
    """The other side sent something that is not a frame of this protocol, or more than is allowed."""


class ConnectionLost(Exception):
    """The other side is gone."""


class DeadlineExceeded(Exception):
    """The other side did not answer in time."""


def send(connection: socket.socket, header: dict[str, Any], tensors: list[Tensor]) -> None:
    """Write one frame; raises ConnectionLost."""
    specs, storages, payload = encode(tensors)
    text = json.dumps({**header, "tensors": specs, "storages": storages}).encode()
    try:
        connection.sendall(PREFIX.pack(MAGIC, len(text), len(payload)) + text)
        connection.sendall(payload)
    except OSError as error:
        raise ConnectionLost(str(error)) from error


def receive(
    connection: socket.socket, deadline: float | None = None, largest_storage: int = MAX_PAYLOAD, guard: int = 0
) -> tuple[dict[str, Any], list[Tensor]]:
    """Read one frame, until `deadline` on time.monotonic(); for largest_storage and guard see decode().

    Raises:
        ConnectionLost, DeadlineExceeded, ProtocolError
    """
    magic, header_size, payload_size = PREFIX.unpack(_read(connection, PREFIX.size, deadline))
    if magic != MAGIC or header_size > MAX_HEADER or payload_size > MAX_PAYLOAD:
        raise ProtocolError("not a frame, or a frame beyond the limits")
    text = _read(connection, header_size, deadline)
    payload = _read(connection, payload_size, deadline)
    try:
        header = json.loads(text)
        return header, decode(header["tensors"], header["storages"], payload, largest_storage, guard)
    except (ValueError, LookupError, TypeError, RuntimeError, RecursionError, safetensors.SafetensorError) as error:
        raise ProtocolError(f"a malformed frame: {error}") from error


def _read(connection: socket.socket, size: int, deadline: float | None) -> bytearray:
    data = bytearray(size)
    view, done = memoryview(data), 0
    while done < size:
        if deadline is not None:
            connection.settimeout(max(1e-3, deadline - time.monotonic()))
        try:
            count = connection.recv_into(view[done:])
        except TimeoutError as error:
            raise DeadlineExceeded from error
        except OSError as error:
            raise ConnectionLost(str(error)) from error
        if not count:
            raise ConnectionLost("closed")
        done += count
    return data


def encode(tensors: list[Tensor]) -> tuple[list[dict[str, Any]], list[dict[str, Any]], bytes]:
    """Describe tensors and their storages, and pack the storages' bytes."""
    groups: dict[int, list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(_storage_key(tensor), []).append(tensor)
    order = list(groups)
    specs = [
        {
            "storage": order.index(_storage_key(t)),
            "dtype": str(t.dtype).removeprefix("torch."),
            "shape": list(t.shape),
            "strides": list(t.stride()),
            "offset": t.storage_offset(),
        }
        for t in tensors
    ]
    storages, parts = [], {}
    for index, group in enumerate(groups.values()):
        storage = group[0].untyped_storage()
        runs = _runs(group, storage.nbytes())
        flat = torch.tensor([], dtype=torch.uint8).set_(storage)
        parts[str(index)] = torch.cat([flat[start:stop] for start, stop in runs]) if runs else flat[:0]
        storages.append({"nbytes": storage.nbytes(), "runs": runs})
    return specs, storages, safetensors.torch.save({name: part.clone() for name, part in parts.items()})


def _storage_key(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _runs(views: list[Tensor], nbytes: int) -> list[tuple[int, int]]:
    """The runs of bytes to send: the whole storage, or what the views touch when it is large."""
    if nbytes <= WHOLE_STORAGE_UP_TO:
        return [(0, nbytes)] if nbytes else []
    spans = sorted(span for view in views for span in _touched(view))
    runs: list[tuple[int, int]] = []
    for start, stop in spans:
        if runs and start <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(stop, runs[-1][1]))
        else:
            runs.append((start, stop))
    return runs


def _touched(view: Tensor) -> list[tuple[int, int]]:
    """The byte spans of a view: one for each run of its contiguous inner dimensions."""
    sizes = [(n, stride) for n, stride in zip(view.shape, view.stride(), strict=True) if n != 1 and stride]
    inner = 1
    while sizes and sizes[-1][1] == inner:
        inner *= sizes.pop()[0]
    outer = [range(0, int(n * stride), int(stride)) for n, stride in sizes]
    spans = [(start, int(start + inner)) for start in map(sum, itertools.product([int(view.storage_offset())], *outer))]
    if len(spans) > MAX_RUNS:
        raise ValueError(f"a view of {len(spans)} separate runs over more than {WHOLE_STORAGE_UP_TO} bytes")
    return [(start * view.itemsize, stop * view.itemsize) for start, stop in spans]


def decode(
    specs: list[dict[str, Any]],
    storages: list[dict[str, Any]],
    payload: bytearray,
    largest_storage: int = MAX_PAYLOAD,
    guard: int = 0,
) -> list[Tensor]:
    """The tensors that encode() described, in storages of at most largest_storage bytes.

    With a guard, so many bytes before and after each storage hold NaN in every float type: who reads past a tensor
    reads the same garbage every time. A guard is a multiple of 64, so that alignment stays. Everything is checked;
    receive() turns whatever this raises into ProtocolError.
    """
    if any(not 0 <= storage["nbytes"] <= largest_storage for storage in storages):
        raise ValueError("a storage beyond the limit")
    parts = safetensors.torch.load(bytes(payload))
    built = [_storage(storage, parts[str(i)], guard) for i, storage in enumerate(storages)]
    return [_view(spec, built[spec["storage"]], guard) for spec in specs]


def _storage(description: dict[str, Any], part: Tensor, guard: int) -> torch.UntypedStorage:
    nbytes = int(description["nbytes"])
    storage = torch.UntypedStorage(nbytes + 2 * guard)
    around = torch.tensor([], dtype=torch.uint8).set_(storage)
    if nbytes <= WHOLE_STORAGE_UP_TO:
        around[:] = 0xFF  # fresh memory may hold anything, even an expected value
    else:
        around[:guard] = around[guard + nbytes :] = 0xFF
    flat = around[guard : guard + nbytes]
    position = 0
    for start, stop in description["runs"]:
        flat[start:stop] = part[position : position + stop - start]
        position += stop - start
    return storage


def _view(spec: dict[str, Any], storage: torch.UntypedStorage, guard: int) -> Tensor:
    dtype, shape, strides, offset = DTYPES[spec["dtype"]], spec["shape"], spec["strides"], spec["offset"]
    if any(type(n) is not int or n < 0 for n in (offset, *shape, *strides)):
        raise ValueError("a shape, stride or offset that is not a natural number")
    last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    if all(shape) and (last + 1) * dtype.itemsize > storage.nbytes() - 2 * guard:
        raise ValueError("a tensor that reaches beyond its storage")
    return torch.tensor([], dtype=dtype).set_(storage, offset + guard // dtype.itemsize, shape, strides)
