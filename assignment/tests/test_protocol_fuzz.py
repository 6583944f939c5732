"""Ten thousand replies that no honest worker sends: the grader raises its own errors, in time, and takes no memory."""

import copy
import json
import random
import resource
import socket
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from assignment.grading import protocol
from assignment.grading.protocol import MAGIC, PREFIX

SEED = 336
FRAMES = 10_000
REFUSED = (protocol.ProtocolError, protocol.ConnectionLost, protocol.DeadlineExceeded)
ID = "5e7f"
PATIENCE_S = 0.003  # with an end that says nothing more; the others are read at once
SLACK_S = 2.0  # for a machine that is busy
MAX_GROWTH = 32 << 20  # bytes

NASTY: list[Any] = [
    *(-1, 0, 1, 2, 3, 63, 2**31, 2**32, 2**40, 2**48, 2**53, 2**62, 2**63 - 1, 2**63, 2**64, -(2**63), 10**19, 10**400),
    *(0.5, 1e308, float("nan"), float("inf"), -0.0, True, False, None),
    *("", "0", "x", "uint8", "float128", "\ud800", "\0", "A" * 5000),
    *([], [[]], [-1], [0, 0], [1] * 70, [2**40] * 3, [[0, 1]] * 50, [[8, 4]], {}, {"nbytes": 1}, {"0": {"0": {}}}),
]
TEXTS = [b"NaN", b"-Infinity", b"1e999", b"9" * 5000, b"[" * 3000, b'{"a":' * 3000, b'"\\ud800"', b"\xff\xfe", b""]


def honest(rng: random.Random) -> tuple[dict, bytearray]:
    base = torch.arange(24.0).view(2, 3, 4)
    tensors = [base, base[:, 1], torch.ones(5, dtype=torch.bfloat16), torch.tensor(3), torch.empty(0, 2)]
    specs, storages, payload = protocol.encode(rng.sample(tensors, rng.randint(0, len(tensors))))
    reply = {"id": ID, "status": "ok", "groups": [len(specs)], "bare": False, "notes": []}
    return json.loads(json.dumps({**reply, "tensors": specs, "storages": storages})), bytearray(payload)


def framed(text: bytes, payload: bytes | bytearray, sizes: tuple[int, int] | None = None) -> bytes:
    return PREFIX.pack(MAGIC, *(sizes or (len(text), len(payload)))) + text + payload


def places(node) -> list[tuple]:
    """Every container of a JSON value, with each of its keys."""
    items = list(node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else [])
    return [(node, key) for key, _ in items] + [place for _, value in items for place in places(value)]


def altered(rng: random.Random) -> bytes:
    """A header in which a few values are others, or gone."""
    header, payload = honest(rng)
    for _ in range(rng.randint(1, 3)):
        container, key = rng.choice(places(header))
        if rng.random() < 0.15:
            del container[key]
        else:
            container[key] = copy.deepcopy(rng.choice(NASTY))
        if not header:
            break
    return framed(json.dumps(header).encode(), payload)


def no_json(rng: random.Random) -> bytes:
    """A header with something in it that JSON has not, or a key twice."""
    header, payload = honest(rng)
    text = json.dumps(header).encode()
    at = rng.choice([i for i, char in enumerate(text) if char in b":,[{"]) + 1
    inserted = rng.choice([*TEXTS, b'"id": "other", ', b'"tensors": [], '])
    return framed(text[:at] + inserted + text[at:], payload)


def flipped(rng: random.Random) -> bytes:
    header, payload = honest(rng)
    data = bytearray(framed(json.dumps(header).encode(), payload))
    for _ in range(rng.choice([1, 2, 10])):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def truncated(rng: random.Random) -> bytes:
    header, payload = honest(rng)
    data = framed(json.dumps(header).encode(), payload)
    return data[: rng.randrange(len(data))]


def lying(rng: random.Random) -> bytes:
    """A payload that is not what the header says, or no safetensors file."""
    header, payload = honest(rng)
    kind = rng.randrange(5)
    if kind == 0:
        payload[:8] = rng.choice([0, 1, 2**20, 2**40, 2**63, len(payload)]).to_bytes(8, "little")
    elif kind == 1:
        payload = payload[: rng.randrange(len(payload) + 1)]
    elif kind == 2:
        payload += bytes(rng.choice([1, 8, 4096]))
    elif kind == 3:
        names = {str(i): {"dtype": rng.choice(["U8", "F32", "F4", "X", "BOOL"]), "shape": rng.choice(NASTY),
                          "data_offsets": rng.choice(NASTY)} for i in range(3)}  # fmt: skip
        text = json.dumps(names).encode()
        payload = bytearray(len(text).to_bytes(8, "little") + text + bytes(64))
    else:
        for _ in range(3):
            payload[rng.randrange(8, len(payload))] = rng.randrange(256)
    return framed(json.dumps(header).encode(), payload)


def huge(rng: random.Random) -> bytes:
    """A few bytes that announce gigabytes: a header, a payload, storages, tensors, a safetensors header, JSON."""
    header, payload = honest(rng)
    kind = rng.randrange(5)
    if kind == 0:
        sizes = (rng.choice([0, 2**20, 2**32 - 1]), rng.choice([2**27, 2**30, 2**40, 2**64 - 1]))
        return framed(b"{}", b"", sizes=sizes)
    if kind == 1:
        header["storages"] = [{"nbytes": rng.choice([1 << 26, (1 << 26) + 1, 1 << 30]), "runs": []}] * 1024
    elif kind == 2:
        header["tensors"] = header["tensors"] * 2000
    elif kind == 3:
        header["more"] = rng.choice([[[]] * 50_000, {str(i): i for i in range(20_000)}, "x" * 500_000])
    else:
        text = json.dumps({str(i): {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for i in range(3000)}).encode()
        payload = bytearray(len(text).to_bytes(8, "little") + text)
    return framed(json.dumps(header).encode(), payload)


def garbage(rng: random.Random) -> bytes:
    return rng.choice([b"", MAGIC, b"HTTP/1.1 200 OK\r\n\r\n"]) + rng.randbytes(rng.randrange(200))


MUTATIONS = {altered: 40, no_json: 10, flipped: 15, truncated: 10, lying: 20, garbage: 5, huge: 2}  # and how often


def read(data: bytes, closes: bool) -> str:
    """What becomes of the bytes at the grader's end: "ok" or the name of the error."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        writer = threading.Thread(target=write, args=(theirs, data, closes))
        if len(data) < 100_000:  # fits in the socket
            writer.run()
        else:
            writer.start()
        deadline = time.monotonic() + (SLACK_S if closes else PATIENCE_S)
        try:
            _, tensors = protocol.receive(
                ours,
                deadline,
                max_header=protocol.MAX_REPLY_HEADER,
                max_payload=protocol.MAX_REPLY_PAYLOAD,
                is_reply_to=ID,
            )
            for tensor in tensors:  # all of it lies in memory
                assert tensor.untyped_storage().nbytes() <= protocol.MAX_PAYLOAD
                tensor[(-1,) * tensor.ndim].item() if tensor.numel() else None
            return "ok"
        except REFUSED as error:
            return type(error).__name__
        finally:
            ours.close()
            if writer.is_alive():
                writer.join()


def write(connection: socket.socket, data: bytes, closes: bool) -> None:
    try:
        connection.sendall(data)
        if closes:
            connection.shutdown(socket.SHUT_WR)
    except OSError:
        return  # the grader has closed its end


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def peak() -> int:
    """The most memory that was resident since the last forget_peak()."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def test_ten_thousand_frames():
    """Each ends within its deadline, in a checked reply or one of three errors; memory stays flat"""
    rng = random.Random(SEED)
    for mutation in MUTATIONS:  # what is loaded at first use is no growth
        read(mutation(rng), closes=True)
    forget_peak()
    before, outcomes = resident(), Counter[str]()
    for number in range(FRAMES):
        mutation = rng.choices(list(MUTATIONS), list(MUTATIONS.values()))[0]
        data, closes = mutation(rng), rng.random() < 0.9
        start = time.monotonic()
        try:
            outcomes[read(data, closes)] += 1
        except BaseException:
            print(f"frame {number} of seed {SEED} ({mutation.__name__}): {data[:2000]!r}")
            raise
        assert time.monotonic() - start < 2 * SLACK_S, f"frame {number} of seed {SEED} took too long"
    assert peak() - before < MAX_GROWTH, f"{(peak() - before) >> 20} MiB more at the peak"
    assert sum(outcomes.values()) == FRAMES
    assert min(outcomes[name] for name in ("ProtocolError", "ConnectionLost", "DeadlineExceeded")) > 100, outcomes
    assert 100 < outcomes["ok"] < FRAMES / 2, outcomes


@pytest.mark.parametrize("mutation", list(MUTATIONS))
def test_each_kind_of_frame_is_mostly_refused(mutation):
    """Otherwise the ten thousand test nothing"""
    rng = random.Random(SEED)
    outcomes = Counter(read(mutation(rng), closes=True) for _ in range(100))
    assert outcomes["ok"] < 60, outcomes


def worker_that(*actions):
    """A thread that reads one request and then acts on the connection, given an honest reply to it."""
    ours, theirs = socket.socketpair()

    def act() -> None:
        with theirs:
            for action in actions:
                action(theirs)

    thread = threading.Thread(target=act)
    thread.start()
    return ours, thread


def ask(connection: socket.socket, timeout_s: float = 0.5) -> str:
    try:
        protocol.exchange(connection, {"kind": "call"}, [torch.ones(3)], timeout_s)
        return "ok"
    except REFUSED as error:
        return type(error).__name__


def answer(connection: socket.socket, times: int = 1, number: str | None = None) -> None:
    header, _ = protocol.receive(connection, time.monotonic() + 5)
    with suppress(protocol.ConnectionLost):
        for _ in range(times):
            protocol.send(connection, {"id": header["id"] if number is None else number}, [])


def wait(connection: socket.socket) -> None:
    connection.settimeout(5)
    with suppress(OSError):
        while connection.recv(1 << 16):
            pass


def test_an_early_answer_is_none():
    """A reply that waits before the question is refused, and one that comes during it cannot know its id"""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        protocol.send(theirs, {"id": 1}, [])
        assert ask(ours) == "ProtocolError"
        theirs.setblocking(False)
        with pytest.raises(BlockingIOError):  # the question was not even asked
            theirs.recv(1)


def test_ids_cannot_be_guessed():
    seen = []
    for _ in range(3):
        connection, thread = worker_that(lambda c: seen.append(protocol.receive(c)[0]["id"]))
        with connection:
            assert ask(connection) == "ConnectionLost"
        thread.join()
    assert len(set(seen)) == 3
    assert all(len(number) == 32 for number in seen)


@pytest.mark.parametrize("number", ["1", "0" * 32, 1, None, [], {"a": 1}, True])
def test_an_answer_to_another_question(number):
    forged = "none" if number is None else number
    connection, thread = worker_that(lambda c: answer(c, number=forged))
    with connection:
        assert ask(connection) == "ProtocolError"
    thread.join()


def test_a_second_answer_is_not_taken_for_the_next():
    """Seen at once, or at the latest before the next question"""
    connection, thread = worker_that(lambda c: answer(c, times=2), wait)
    with connection:
        outcomes = [ask(connection), ask(connection)]
    thread.join()
    assert outcomes[1] == "ProtocolError"


def answer_twice_at_once(connection: socket.socket) -> None:
    header, _ = protocol.receive(connection)
    text = json.dumps({"id": header["id"], "tensors": [], "storages": []}).encode()
    connection.sendall(2 * framed(text, safetensors.torch.save({})))


def test_two_answers_to_one_question_are_none():
    """It is this call that is refused, not the next one"""
    connection, thread = worker_that(answer_twice_at_once, wait)
    with connection:
        assert ask(connection) == "ProtocolError"
    thread.join()


def drip(connection: socket.socket) -> None:
    """A reply at one byte every few milliseconds."""
    header, _ = protocol.receive(connection)
    data = framed(json.dumps({"id": header["id"], "tensors": [], "storages": [], "x": "x" * 5000}).encode(), b"")
    for byte in data:
        time.sleep(0.001)
        try:
            connection.send(bytes([byte]))
        except OSError:
            return


def flood(connection: socket.socket) -> None:
    """Bytes without end that are a valid start of a reply."""
    protocol.receive(connection)
    try:
        connection.sendall(PREFIX.pack(MAGIC, protocol.MAX_REPLY_HEADER, protocol.MAX_REPLY_PAYLOAD))
        while True:
            connection.sendall(bytes(1 << 16))
    except OSError:
        return


@pytest.mark.parametrize("action", [drip, wait])
def test_a_slow_answer_does_not_move_the_deadline(action):
    connection, thread = worker_that(action)
    start = time.monotonic()
    with connection:
        assert ask(connection, 0.3) == "DeadlineExceeded"
    assert 0.25 < time.monotonic() - start < 1.5
    thread.join()


def test_a_flood_ends_at_the_limit():
    connection, thread = worker_that(flood)
    with connection:
        assert ask(connection, 10) == "ProtocolError"
    thread.join()


def test_a_worker_that_does_not_read_stops_the_grader_until_its_deadline():
    ours, theirs = socket.socketpair()
    start = time.monotonic()
    with ours, theirs, pytest.raises(protocol.DeadlineExceeded):
        protocol.exchange(ours, {}, [torch.zeros(1 << 22)], 0.3)
    assert time.monotonic() - start < 1.5


def test_the_largest_reply_takes_four_times_its_size():
    """The bound on memory that the module states, reached from below"""
    size = protocol.MAX_REPLY_PAYLOAD - 4096
    sender, receiver = socket.socketpair()
    zeros = torch.zeros(size >> 1, dtype=torch.uint8)
    specs, storages, payload = protocol.encode([zeros, zeros.clone()])
    data = framed(json.dumps({"id": ID, "tensors": specs, "storages": storages}).encode(), payload)
    thread = threading.Thread(target=sender.sendall, args=(data,))
    with sender, receiver:
        thread.start()
        forget_peak()
        before = resident()
        _, tensors = protocol.receive(receiver, max_payload=protocol.MAX_REPLY_PAYLOAD, is_reply_to=ID)
        thread.join()
    assert len(tensors) == 2
    assert peak() - before < 4.2 * size


def received(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        writer = threading.Thread(target=write, args=(theirs, data, True))
        writer.start()
        try:
            protocol.receive(ours, time.monotonic() + 10)
        finally:
            ours.close()
            writer.join()


NOTHING = safetensors.torch.save({})


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
    received(framed(b'{"tensors": [], "storages": []}', NOTHING))
    with pytest.raises(protocol.ProtocolError, match=words):
        received(framed(text + b'"tensors": [], "storages": []}', NOTHING))


def test_tensors_and_dimensions_are_counted():
    specs, storages, payload = protocol.encode([torch.ones(1)])
    flat = {**specs[0], "shape": [1] * protocol.MAX_DIMENSIONS, "strides": [1] * protocol.MAX_DIMENSIONS}
    deeper = {**specs[0], "shape": [1, *flat["shape"]], "strides": [1, *flat["strides"]]}
    assert len(protocol.decode([flat] * protocol.MAX_TENSORS, storages, bytearray(payload))) == protocol.MAX_TENSORS
    with pytest.raises(protocol.ProtocolError, match="long"):
        protocol.decode([flat] * (protocol.MAX_TENSORS + 1), storages, bytearray(payload))
    with pytest.raises(protocol.ProtocolError, match="natural"):
        protocol.decode([deeper], storages, bytearray(payload))


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"1": torch.ones(4, dtype=torch.uint8)},
        {"0": torch.ones(4, dtype=torch.uint8), "1": torch.ones(4, dtype=torch.uint8)},
        {"0": torch.ones(5, dtype=torch.uint8)},
        {"0": torch.ones(2, 2, dtype=torch.uint8)},
        {"0": torch.ones(4, dtype=torch.int8)},
        {"0": torch.ones(1)},
    ],
)
def test_a_payload_is_what_its_header_says(parts):
    specs, storages, _ = protocol.encode([torch.ones(1)])
    with pytest.raises(protocol.ProtocolError, match="not what its header says"):
        protocol.decode(specs, storages, bytearray(safetensors.torch.save(parts)))


def test_a_payload_of_many_names_is_not_parsed():
    names = {str(i): {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for i in range(10_000)}
    text = json.dumps(names).encode()
    with pytest.raises(protocol.ProtocolError, match="more than the storages"):
        protocol.decode([], [], bytearray(len(text).to_bytes(8, "little") + text))


@pytest.mark.parametrize("changes", [{"offset": 2**49}, {"strides": [2**49]}, {"shape": [True]}, {"storage": 0.0}])
def test_numbers_are_natural_and_of_a_size(changes):
    specs, storages, payload = protocol.encode([torch.empty(0)])
    with pytest.raises(protocol.ProtocolError, match="natural"):
        protocol.decode([{**specs[0], **changes}], storages, bytearray(payload))


class Trickle:
    """A connection on which the next byte is always there."""

    def __init__(self) -> None:
        self.data = iter(PREFIX.pack(MAGIC, protocol.MAX_REPLY_HEADER, protocol.MAX_REPLY_PAYLOAD))

    def settimeout(self, seconds: float) -> None:
        assert seconds > 0

    def recv(self, size: int) -> bytes:
        return bytes([next(self.data, 0)])


def test_a_byte_that_is_always_there_does_not_move_the_deadline():
    start = time.monotonic()
    with pytest.raises(protocol.DeadlineExceeded):
        protocol.receive(Trickle(), start + 0.2)  # type: ignore[arg-type]
    assert time.monotonic() - start < 1.5


def test_small_storages_are_sent_whole():
    """Many storages out of a tiny frame would each take memory that nobody sent"""
    specs, _, payload = protocol.encode([torch.ones(3)])
    storage = {"nbytes": protocol.WHOLE_STORAGE_UP_TO, "runs": []}
    for storages in ([storage], [{"nbytes": 12, "runs": [[0, 8]]}]):
        with pytest.raises(protocol.ProtocolError, match="missing"):
            protocol.decode(specs, storages, bytearray(payload))


@pytest.mark.parametrize("runs", [[[0, 8], [4, 12]], [[8, 12], [0, 8]], [[12, 0]], [[0, 16]], [[-4, 12]], [[0.0, 12]]])
def test_runs_go_forwards_and_stay_inside(runs):
    specs, storages, payload = protocol.encode([torch.ones(3)])
    with pytest.raises(protocol.ProtocolError, match="run"):
        protocol.decode(specs, [{**storages[0], "runs": runs}], bytearray(payload))


def test_storages_are_limited_together():
    specs, storages, payload = protocol.encode([torch.ones(3), torch.ones(3)])
    assert len(protocol.decode(specs, storages, bytearray(payload), largest_storage=24)) == 2
    with pytest.raises(protocol.ProtocolError, match="limit"):
        protocol.decode(specs, storages, bytearray(payload), largest_storage=23)


@pytest.mark.parametrize("shape", [[2**48, 2**48, 4], [2**30], [0, 2**49], [0, 2**48, 2**48]])
@pytest.mark.parametrize("strides", [0, 2**62])
def test_numbers_that_overflow(shape, strides):
    specs, storages, payload = protocol.encode([torch.ones(3)])
    spec = {**specs[0], "shape": shape, "strides": [strides] * len(shape)}
    with pytest.raises(protocol.ProtocolError):
        protocol.decode([spec], storages, bytearray(payload))
