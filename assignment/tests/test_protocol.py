"""The wire: layouts arrive as they are, and whatever is no frame is refused."""

import json
import math
import socket
import struct
import threading
import time

import pytest
import torch

from assignment.judge.returned import same_bits
from assignment.protocol import requests, wire
from assignment.protocol.requests import Call, Compile, Hold, Load
from assignment.protocol.wire import PREFIX
from tests.operators import called


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def exchanged(pair, tensors):
    sender = threading.Thread(target=wire.send, args=(pair[0], {"id": 7}, tensors))
    sender.start()
    header, received = wire.receive(pair[1], time.monotonic() + 10, largest_storage=1 << 40)
    sender.join()
    assert header["id"] == 7
    return received


BASE = torch.arange(60.0).view(3, 4, 5)


@pytest.mark.parametrize(
    "tensor",
    [
        pytest.param(BASE, id="contiguous"),
        pytest.param(BASE.transpose(0, 2), id="transposed"),
        pytest.param(BASE[1:, ::2, 1:4], id="a window"),
        pytest.param(BASE[:, :1].expand(3, 9, 5), id="expanded"),
        pytest.param(torch.tensor(3.0), id="rank 0"),
        pytest.param(torch.empty(0, 4), id="empty"),
        pytest.param(torch.tensor([math.nan, math.inf, -0.0]), id="special values"),
        *(pytest.param(torch.ones(3).to(dtype), id=name) for name, dtype in wire.DTYPES.items()),
    ],
)
def test_a_layout_arrives_as_it_is(pair, tensor):
    (received,) = exchanged(pair, [tensor])
    assert received.dtype == tensor.dtype
    assert received.stride() == tensor.stride()
    assert received.storage_offset() == tensor.storage_offset()
    assert received.shape == tensor.shape
    assert same_bits(received, tensor)


def test_what_lies_between_the_rows_arrives_too(pair):
    fenced = torch.full((6, 8), math.nan)
    fenced[1:4, 2:5] = 1
    (received,) = exchanged(pair, [fenced[1:4, 2:5]])
    assert torch.equal(received.untyped_storage().nbytes() and received.sum(), torch.tensor(9.0))
    around = torch.tensor([]).set_(received.untyped_storage(), 0, (6, 8), (8, 1))
    assert around.isnan().sum() == 48 - 9


def test_views_of_one_storage_share_it(pair):
    a, b, other = exchanged(pair, [BASE[0], BASE[:, 0], torch.arange(60.0)])
    a.zero_()
    assert b[0].eq(0).all()
    assert other[0] == 0
    assert other[1] == 1


def test_a_view_over_gigabytes_sends_what_it_touches(pair):
    storage = torch.UntypedStorage(9 << 30)
    view = torch.tensor([]).set_(storage, 0, (2, 3, 8), ((1 << 31) + 64, 100, 1))
    view.copy_(torch.arange(48.0).view(2, 3, 8))
    specs, storages, payload = wire.encode([view])
    assert len(payload) < 4096
    assert len(storages[0]["runs"]) == 6
    (received,) = wire.decode(specs, storages, bytearray(payload), largest_storage=1 << 40)
    assert torch.equal(received, view)
    assert received.stride() == view.stride()


def frame(header, payload=b"", magic=wire.MAGIC, size=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return PREFIX.pack(magic, len(text) if size is None else size, len(payload)) + text + payload


def tensors_frame(**changes):
    specs, storages, payload = wire.encode([torch.arange(6.0).view(2, 3)])
    spec = {**specs[0], **{key: value for key, value in changes.items() if key != "nbytes"}}
    storage = {**storages[0], **{key: value for key, value in changes.items() if key == "nbytes"}}
    return frame({"tensors": [spec], "storages": [storage]}, payload)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(frame({}, magic=b"HTTP"), id="another magic"),
        pytest.param(frame({}, size=wire.MAX_HEADER + 1), id="a header beyond the limit"),
        pytest.param(PREFIX.pack(wire.MAGIC, 2, wire.MAX_PAYLOAD + 1) + b"{}", id="a payload beyond the limit"),
        pytest.param(frame(b"{"), id="no JSON"),
        pytest.param(frame(b"[" * 100_000), id="deeply nested JSON"),
        pytest.param(frame([]), id="no object"),
        pytest.param(frame({"tensors": [], "storages": []}, b"more"), id="bytes of no storage"),
        pytest.param(tensors_frame(shape=[2, 4]), id="beyond the storage"),
        pytest.param(tensors_frame(offset=-1), id="a negative offset"),
        pytest.param(tensors_frame(strides=[3]), id="fewer strides than dimensions"),
        pytest.param(tensors_frame(shape=["2", 3]), id="a shape of strings"),
        pytest.param(tensors_frame(dtype="float128"), id="an unknown dtype"),
        pytest.param(tensors_frame(storage=3), id="an unknown storage"),
        pytest.param(tensors_frame(nbytes=1 << 60), id="a storage beyond the limit"),
    ],
)
def test_what_is_no_frame_is_refused(pair, data):
    threading.Thread(target=pair[0].sendall, args=(data,)).start()
    with pytest.raises(wire.ProtocolError):
        wire.receive(pair[1], time.monotonic() + 10)


def test_a_frame_cut_short(pair):
    pair[0].sendall(tensors_frame()[:-5])
    pair[0].shutdown(socket.SHUT_WR)
    with pytest.raises(wire.ConnectionLost):
        wire.receive(pair[1], time.monotonic() + 10)


@pytest.mark.parametrize("sent", [0, 10, 100])
def test_a_deadline(pair, sent):
    pair[0].sendall(tensors_frame()[:sent])
    with pytest.raises(wire.DeadlineExceeded):
        wire.receive(pair[1], time.monotonic() + 0.2)


def test_the_prefix_is_sixteen_bytes():
    assert struct.calcsize(PREFIX.format) == 16


CALL = Call(**called("weighted_sum"), options={"eps": 1e-5, "block": (1, 128)}, made=[("float32", [3, 4], None)])
HELD = Hold(**called("weighted_sum"), options={}, memory=[7, "a"], slots=[[(0, "float32", [3])]], outputs=[])


@pytest.mark.parametrize("request_", [CALL, HELD, Load(sources={"a.py": ""}), Compile(programs={"h100": 0})], ids=repr)
def test_a_request_arrives(request_):
    sent = json.loads(json.dumps({**requests.written(request_), "id": "x", "tensors": []}))
    came = requests.read(sent, "compile" if isinstance(request_, Compile) else "gpu")
    assert type(came) is type(request_)
    assert json.dumps(requests.written(came)) == json.dumps(requests.written(request_))
    assert vars(came).get("options") == vars(request_).get("options")


@pytest.mark.parametrize(
    ("role", "changed"),
    [
        ("record", {"kind": "calls"}),
        ("record", {"kind": ["call"]}),
        ("record", {"kind": "kept"}),
        ("compile", {}),
        ("record", {"order": "1"}),
        ("record", {"order": True}),
        ("record", {"drawn": 1.5}),
        ("record", {"about": None}),
        ("record", {"function": ...}),
    ],
)
def test_a_header_that_is_no_request_of_the_role_is_refused(role, changed):
    header = {**requests.written(CALL), **changed}
    with pytest.raises(requests.UnknownRequest):
        requests.read({name: value for name, value in header.items() if value is not ...}, role)
