"""The wire between grader and worker: frames of a JSON header and tensors, without pickle.

    frame = magic (4 bytes) | length of the header (u32) | length of the payload (u64) | header | payload

The header is JSON in UTF-8. Under "tensors" it describes each tensor as a view (dtype, shape,
strides, offset) of a storage, and under "storages" each storage as a size and the runs of bytes
that were sent; the payload is those runs, one after another. Views, overlaps and shared storages
thus arrive unchanged, and a view that strides over gigabytes costs only what it touches.

The other end may be an attacker. Whatever it sends, receive() and answer_to() end by their deadline,
with a frame in which everything has been checked or with one of the three exceptions below, and
hold at most three times the payload that they allow.
"""

import contextlib
import itertools
import json
import math
import secrets
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any, NoReturn, TypeGuard

import torch
from torch import Tensor

from assignment.protocol.messages import Header, StorageEntry, TensorEntry, Value

MAGIC = b"K336"
PREFIX = struct.Struct("<4sIQ")
MAX_HEADER = 4 << 20
MAX_PAYLOAD = 1 << 30
MAX_REPLY_HEADER = 1 << 20
MAX_REPLY_PAYLOAD = 128 << 20  # the reference's largest reply is 1.2 MB
MAX_TENSORS = 1024
MAX_DIMENSIONS = 64
# of a shape, strides or offset: products of two stay far from where int64 ends
MAX_NUMBER = 1 << 48
MAX_DIGITS = 20
CHUNK = 1 << 20  # bytes read at once: what was announced but never sent costs nothing
WHOLE_STORAGE_UP_TO = 64 << 20  # bytes; of a larger storage only what the views touch is sent
MAX_RUNS = 1 << 16
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool, torch.uint8,
        torch.int8, torch.int16, torch.int32, torch.int64, torch.complex64, torch.complex128,
        torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu,
        torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
    )
}  # fmt: skip


class ProtocolError(Exception):
    """The other side sent something malformed, or more than is allowed."""


class ConnectionLost(Exception):
    """The other side is gone."""


class DeadlineExceeded(Exception):
    """The other side did not answer in time."""


def ask(connection: socket.socket, request: Header, tensors: list[Tensor], deadline: float) -> str:
    """Send a request and return its id, which is secret until then; raises as receive() does.

    Nothing may wait on the connection before: what was sent early is not an answer.
    """
    expect_silence(connection)
    number = secrets.token_hex(16)
    send(connection, {**request, "id": number}, tensors, deadline)
    return number


def answer_to(number: str, connection: socket.socket, deadline: float) -> tuple[Header, list[Tensor]]:
    """Return the answer to the request of that id; refuse anything after it."""
    answer = receive(
        connection, deadline, max_header=MAX_REPLY_HEADER, max_payload=MAX_REPLY_PAYLOAD, is_reply_to=number
    )
    expect_silence(connection)
    return answer


def expect_silence(connection: socket.socket) -> None:
    connection.setblocking(False)
    try:
        data = connection.recv(1, socket.MSG_PEEK)
    except OSError:  # nothing there; a lost connection is reported at its next use
        return
    if data:
        raise ProtocolError("an answer without a request")


def send(connection: socket.socket, header: Header, tensors: list[Tensor], deadline: float | None = None) -> None:
    """Write one frame, until `deadline` on time.monotonic(); raises as receive() does."""
    specs, storages, payload = encode(tensors)
    text = json.dumps({**header, "tensors": specs, "storages": storages}).encode()
    for part in (PREFIX.pack(MAGIC, len(text), len(payload)) + text, payload):
        connection.settimeout(remaining(deadline))
        with broken_as_lost():
            connection.sendall(part)


def receive(
    connection: socket.socket,
    deadline: float | None = None,
    largest_storage: int = MAX_PAYLOAD,
    guard: int = 0,
    max_header: int = MAX_HEADER,
    max_payload: int = MAX_PAYLOAD,
    is_reply_to: str | None = None,
) -> tuple[Header, list[Tensor]]:
    """Read one frame, until `deadline` on time.monotonic(); see decode() for other arguments.

    Raises:
        ConnectionLost, DeadlineExceeded, ProtocolError
    """
    magic, header_size, payload_size = PREFIX.unpack(_read(connection, PREFIX.size, deadline))
    if magic != MAGIC or header_size > max_header or payload_size > max_payload:
        raise ProtocolError("not a frame, or a frame beyond the limits")
    text = _read(connection, header_size, deadline)
    payload = _read(connection, payload_size, deadline)
    try:
        header = parse(text)
        if is_reply_to is not None and header.get("id") != is_reply_to:
            raise ProtocolError("an answer to another question")
        return header, decode(header["tensors"], header["storages"], payload, largest_storage, guard)
    except ProtocolError:
        raise
    except Exception as error:  # of three parsers at once; its text is the sender's, its type is not
        raise ProtocolError(f"a malformed frame ({type(error).__name__})") from error


def _read(connection: socket.socket, size: int, deadline: float | None) -> bytearray:
    data = bytearray()
    while len(data) < size:
        connection.settimeout(remaining(deadline))
        with broken_as_lost():
            chunk = connection.recv(min(CHUNK, size - len(data)))
        if not chunk:
            raise ConnectionLost("closed")
        data += chunk
    return data


@contextlib.contextmanager
def broken_as_lost() -> Iterator[None]:
    """Translate a socket's exceptions into ours."""
    try:
        yield
    except TimeoutError as error:
        raise DeadlineExceeded from error
    except OSError as error:
        raise ConnectionLost(str(error)) from error


def remaining(deadline: float | None) -> float | None:
    """Return the seconds until the deadline, for a socket's timeout.

    Single bytes that keep arriving do not extend it.
    """
    if deadline is None:
        return None
    if (seconds := deadline - time.monotonic()) <= 0:
        raise DeadlineExceeded
    return seconds


def parse(text: bytearray) -> dict[str, Any]:
    """Parse standard JSON: no NaN, no infinite or endless number, no duplicate key."""
    header = json.loads(
        text.decode(), object_pairs_hook=_object, parse_int=_integer, parse_float=_finite, parse_constant=_refuse
    )
    if not isinstance(header, dict):
        raise ProtocolError("a header that is no object")
    return header


def _object(pairs: list[tuple[str, Value]]) -> Header:
    if len(found := dict(pairs)) < len(pairs):
        raise ProtocolError("a key twice")
    return found


def _integer(text: str) -> int:
    return int(text) if len(text) <= MAX_DIGITS else _refuse(text)


def _finite(text: str) -> float:
    return value if math.isfinite(value := float(text)) else _refuse(text)


def _refuse(_: str) -> NoReturn:
    raise ProtocolError("a number that JSON does not have, or too long a number")


def encode(tensors: list[Tensor]) -> tuple[list[TensorEntry], list[StorageEntry], bytearray]:
    """Describe tensors and their storages, and pack the storages' bytes."""
    groups: dict[int, list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(_storage_key(tensor), []).append(tensor)
    order = list(groups)
    specs: list[TensorEntry] = [
        {
            "storage": order.index(_storage_key(t)),
            "dtype": str(t.dtype).removeprefix("torch."),
            "shape": list(t.shape),
            "strides": list(t.stride()),
            "offset": int(t.storage_offset()),
        }
        for t in tensors
    ]
    storages: list[StorageEntry] = []
    payload = bytearray()
    for group in groups.values():
        storage = group[0].untyped_storage()
        runs = _runs(group, storage.nbytes())
        content = _bytes(storage) if runs else memoryview(b"")
        for start, stop in runs:
            payload += content[start:stop]
        storages.append({"nbytes": storage.nbytes(), "runs": runs})
    return specs, storages, payload


def _bytes(storage: torch.UntypedStorage) -> memoryview:
    """Return the bytes of a storage themselves, not a copy."""
    return torch.tensor([], dtype=torch.uint8).set_(storage).numpy().data


def _storage_key(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _runs(views: list[Tensor], nbytes: int) -> list[tuple[int, int]]:
    """Return the runs of bytes to send: the whole storage, or the views of a large one."""
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
    """Return the byte spans of a view: one for each run of its contiguous inner dimensions."""
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
    specs: list[TensorEntry],
    storages: list[StorageEntry],
    payload: bytearray,
    largest_storage: int = MAX_PAYLOAD,
    guard: int = 0,
) -> list[Tensor]:
    """Return the tensors that encode() described, in at most largest_storage bytes of storages.

    With a guard, that many bytes before and after each storage hold NaN in every float type: code
    that reads past a tensor reads the same garbage every time. A guard is a multiple of 64, so that
    alignment stays. Everything is checked before memory is allocated for it; receive() turns
    whatever this raises into ProtocolError.
    """
    if type(specs) is not list or type(storages) is not list or max(len(specs), len(storages)) > MAX_TENSORS:
        raise ProtocolError("no lists of tensors and storages, or too long ones")
    sent = [_bytes_sent(storage) for storage in storages]
    if sum(storage["nbytes"] for storage in storages) > largest_storage:
        raise ProtocolError("storages beyond the limit")
    if len(payload) != sum(sent):
        raise ProtocolError("a payload that is not what its header says")
    parts = _parts(memoryview(payload), sent)
    built = [_storage(storage, part, guard) for storage, part in zip(storages, parts, strict=True)]
    return [_view(spec, built, guard) for spec in specs]


def _bytes_sent(storage: StorageEntry) -> int:
    """Return the length of a storage's runs, which must be in order and inside.

    It is all of the storage unless that is a large one.
    """
    nbytes, runs = storage["nbytes"], storage["runs"]
    edges = [0, *(edge for start, stop in runs for edge in (start, stop)), nbytes]
    if not all(is_natural(edge) for edge in edges) or len(runs) > MAX_RUNS:
        raise ProtocolError("a run of bytes without a natural beginning and end, or too many runs")
    if any(a > b for a, b in itertools.pairwise(edges)):
        raise ProtocolError("runs of bytes that overlap, or lie outside of their storage")
    length = sum(stop - start for start, stop in runs)
    if nbytes <= WHOLE_STORAGE_UP_TO and length < nbytes:
        raise ProtocolError("a storage of which a part is missing")
    return length


def _parts(payload: memoryview, sizes: list[int]) -> Iterator[memoryview]:
    """Yield the bytes that were sent of each storage."""
    position = 0
    for size in sizes:
        yield payload[position : position + size]
        position += size


def _storage(description: StorageEntry, part: memoryview, guard: int) -> torch.UntypedStorage:
    nbytes = description["nbytes"]
    storage = torch.UntypedStorage(nbytes + 2 * guard)
    if not nbytes + guard:
        return storage
    content, around = _bytes(storage), b"\xff" * guard
    content[:guard] = content[guard + nbytes :] = around
    position = 0
    for start, stop in description["runs"]:
        content[guard + start : guard + stop] = part[position : position + stop - start]
        position += stop - start
    return storage


def _view(spec: TensorEntry, storages: list[torch.UntypedStorage], guard: int) -> Tensor:
    index, shape, strides, offset = spec["storage"], spec["shape"], spec["strides"], spec["offset"]
    if not all(is_natural(n) for n in (index, offset, *shape, *strides)) or len(shape) > MAX_DIMENSIONS:
        raise ProtocolError("a shape, stride or offset that is not a natural number")
    dtype, storage = DTYPES[spec["dtype"]], storages[index]
    last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    if all(shape) and (last + 1) * dtype.itemsize > storage.nbytes() - 2 * guard:
        raise ProtocolError("a tensor that reaches beyond its storage")
    # strides of 0 make any number of elements out of one
    if math.prod(n or 1 for n in shape) * dtype.itemsize > MAX_PAYLOAD:
        raise ProtocolError("a tensor beyond the limit")
    return torch.tensor([], dtype=dtype).set_(storage, offset + guard // dtype.itemsize, shape, strides)


def is_natural(n: Value) -> TypeGuard[int]:
    return type(n) is int and 0 <= n <= MAX_NUMBER
