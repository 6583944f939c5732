"""Ten thousand replies that no honest worker sends: the grader raises its own errors, in time, and takes no memory."""

import copy
import json
import random
import socket
import threading
import time
from collections import Counter
from typing import Any

import pytest
import torch

from assignment.protocol import wire
from assignment.protocol.wire import MAGIC
from assignment.tests.frames import ID, REFUSED, forget_peak, framed, peak, resident, write

SEED = 336
FRAMES = 10_000
PATIENCE_S = 0.003  # with an end that says nothing more; the others are read at once
SLACK_S = 2.0  # for a machine that is busy
MAX_GROWTH = 32 << 20  # bytes


NASTY: list[Any] = [
    -1, 0, 1, 2, 3, 63, 2**31, 2**32, 2**40, 2**48, 2**53, 2**62, 2**63 - 1, 2**63, 2**64, -(2**63), 10**19, 10**400,
    0.5, 1e308, float("nan"), float("inf"), -0.0, True, False, None,
    "", "0", "x", "uint8", "float128", "\ud800", "\0", "A" * 5000,
    [], [[]], [-1], [0, 0], [1] * 70, [2**40] * 3, [[0, 1]] * 50, [[8, 4]], {}, {"nbytes": 1}, {"0": {"0": {}}},
]  # fmt: skip


TEXTS = [b"NaN", b"-Infinity", b"1e999", b"9" * 5000, b"[" * 3000, b'{"a":' * 3000, b'"\\ud800"', b"\xff\xfe", b""]


def honest(rng: random.Random) -> tuple[dict, bytearray]:
    base = torch.arange(24.0).view(2, 3, 4)
    tensors = [base, base[:, 1], torch.ones(5, dtype=torch.bfloat16), torch.tensor(3), torch.empty(0, 2)]
    specs, storages, payload = wire.encode(rng.sample(tensors, rng.randint(0, len(tensors))))
    reply = {"id": ID, "status": "ok", "groups": [len(specs)], "bare": False, "notes": []}
    return json.loads(json.dumps({**reply, "tensors": specs, "storages": storages})), bytearray(payload)


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
    """A payload that is not what the header says."""
    header, payload = honest(rng)
    kind = rng.randrange(3)
    if kind == 0:
        payload = payload[: rng.randrange(len(payload) + 1)]
    elif kind == 1:
        payload += bytes(rng.choice([1, 8, 4096]))
    else:
        for entry in header["storages"]:
            entry["runs"] = copy.deepcopy(rng.choice(NASTY))
    return framed(json.dumps(header).encode(), payload)


def huge(rng: random.Random) -> bytes:
    """A few bytes that announce gigabytes: a header, a payload, storages, tensors, JSON."""
    header, payload = honest(rng)
    kind = rng.randrange(4)
    if kind == 0:
        sizes = (rng.choice([0, 2**20, 2**32 - 1]), rng.choice([2**27, 2**30, 2**40, 2**64 - 1]))
        return framed(b"{}", b"", sizes=sizes)
    if kind == 1:
        header["storages"] = [{"nbytes": rng.choice([1 << 26, (1 << 26) + 1, 1 << 30]), "runs": []}] * 1024
    elif kind == 2:
        header["tensors"] = header["tensors"] * 2000
    else:
        header["more"] = rng.choice([[[]] * 50_000, {str(i): i for i in range(20_000)}, "x" * 500_000])
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
            _, tensors = wire.receive(
                ours,
                deadline,
                max_header=wire.MAX_REPLY_HEADER,
                max_payload=wire.MAX_REPLY_PAYLOAD,
                is_reply_to=ID,
            )
            for tensor in tensors:  # all of it lies in memory
                assert tensor.untyped_storage().nbytes() <= wire.MAX_PAYLOAD
                tensor[(-1,) * tensor.ndim].item() if tensor.numel() else None
            return "ok"
        except REFUSED as error:
            return type(error).__name__
        finally:
            ours.close()
            if writer.is_alive():
                writer.join()


@pytest.mark.slow
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
