"""What a reply may hold: numbers, names, tensors, storages and the memory they take."""

import json
import socket
import threading
import time
from typing import Any

import pytest
import torch

from assignment.protocol import wire
from assignment.tests.frames import ID, forget_peak, framed, peak, resident, write


def test_the_largest_reply_takes_three_times_its_size():
    """The bound on memory that the module states, reached from below"""
    size = wire.MAX_REPLY_PAYLOAD - 4096
    sender, receiver = socket.socketpair()
    zeros = torch.zeros(size >> 1, dtype=torch.uint8)
    specs, storages, payload = wire.encode([zeros, zeros.clone()])
    data = framed(json.dumps({"id": ID, "tensors": specs, "storages": storages}).encode(), payload)
    thread = threading.Thread(target=sender.sendall, args=(data,))
    with sender, receiver:
        thread.start()
        forget_peak()
        before = resident()
        _, tensors = wire.receive(receiver, max_payload=wire.MAX_REPLY_PAYLOAD, is_reply_to=ID)
        thread.join()
    assert len(tensors) == 2
    assert peak() - before < 3 * size


def received(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        writer = threading.Thread(target=write, args=(theirs, data, True))
        writer.start()
        try:
            wire.receive(ours, time.monotonic() + 10)
        finally:
            ours.close()
            writer.join()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'{"x": NaN, ', "number"),
        (b'{"x": -Infinity, ', "number"),
        (b'{"x": 1e999, ', "number"),
        (b'{"x": ' + b"9" * 21 + b", ", "number"),
        (b'{"tensors": [], ', "twice"),
        (b'{"x": {"a": 1, "a": 1}, ', "twice"),
    ],
)
def test_json_has_numbers_and_each_key_once(text, words):
    received(framed(b'{"tensors": [], "storages": []}', b""))
    with pytest.raises(wire.ProtocolError, match=words):
        received(framed(text + b'"tensors": [], "storages": []}', b""))


def test_tensors_and_dimensions_are_counted():
    specs, storages, payload = wire.encode([torch.ones(1)])
    flat: Any = {**specs[0], "shape": [1] * wire.MAX_DIMENSIONS, "strides": [1] * wire.MAX_DIMENSIONS}
    deeper: Any = {**specs[0], "shape": [1, *flat["shape"]], "strides": [1, *flat["strides"]]}
    assert len(wire.decode([flat] * wire.MAX_TENSORS, storages, bytearray(payload))) == wire.MAX_TENSORS
    with pytest.raises(wire.ProtocolError, match="long"):
        wire.decode([flat] * (wire.MAX_TENSORS + 1), storages, bytearray(payload))
    with pytest.raises(wire.ProtocolError, match="natural"):
        wire.decode([deeper], storages, bytearray(payload))


@pytest.mark.parametrize("size", [0, 3, 5, 8])
def test_a_payload_is_what_its_header_says(size):
    specs, storages, _ = wire.encode([torch.ones(1)])
    with pytest.raises(wire.ProtocolError, match="not what its header says"):
        wire.decode(specs, storages, bytearray(size))


@pytest.mark.parametrize("changes", [{"offset": 2**49}, {"strides": [2**49]}, {"shape": [True]}, {"storage": 0.0}])
def test_numbers_are_natural_and_of_a_size(changes):
    specs, storages, payload = wire.encode([torch.empty(0)])
    with pytest.raises(wire.ProtocolError, match="natural"):
        wire.decode([{**specs[0], **changes}], storages, bytearray(payload))


def test_small_storages_are_sent_whole():
    """Many storages out of a tiny frame would each take memory that nobody sent"""
    specs, _, payload = wire.encode([torch.ones(3)])
    whole = [{"nbytes": wire.WHOLE_STORAGE_UP_TO, "runs": []}]
    storages: Any
    for storages in (whole, [{"nbytes": 12, "runs": [[0, 8]]}]):
        with pytest.raises(wire.ProtocolError, match="missing"):
            wire.decode(specs, storages, bytearray(payload))


@pytest.mark.parametrize("runs", [[[0, 8], [4, 12]], [[8, 12], [0, 8]], [[12, 0]], [[0, 16]], [[-4, 12]], [[0.0, 12]]])
def test_runs_go_forwards_and_stay_inside(runs):
    specs, storages, payload = wire.encode([torch.ones(3)])
    with pytest.raises(wire.ProtocolError, match="run"):
        wire.decode(specs, [{**storages[0], "runs": runs}], bytearray(payload))


def test_storages_are_limited_together():
    specs, storages, payload = wire.encode([torch.ones(3), torch.ones(3)])
    assert len(wire.decode(specs, storages, bytearray(payload), largest_storage=24)) == 2
    with pytest.raises(wire.ProtocolError, match="limit"):
        wire.decode(specs, storages, bytearray(payload), largest_storage=23)


@pytest.mark.parametrize("shape", [[2**48, 2**48, 4], [2**30], [0, 2**49], [0, 2**48, 2**48]])
@pytest.mark.parametrize("strides", [0, 2**62])
def test_numbers_that_overflow(shape, strides):
    specs, storages, payload = wire.encode([torch.ones(3)])
    spec: Any = {**specs[0], "shape": shape, "strides": [strides] * len(shape)}
    with pytest.raises(wire.ProtocolError):
        wire.decode([spec], storages, bytearray(payload))
