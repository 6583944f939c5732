"""Programs as hostile data: whatever a recorder sends is refused, or is well formed, or costs its own call."""

import copy
import json
import random
import re
from typing import Any

import pytest
import torch

from assignment.judge import program_size
from assignment.judge.replies import Broken, NoResult, Ok, Recorded
from assignment.protocol import program as programs
from assignment.protocol.program import Constant, Inputs, Launch, Operation, Program, Read, Unreadable
from assignment.protocol.wire import MAX_NUMBER
from assignment.sandbox.worker_client import WorkerDied
from assignment.tests.pairs import desk, request

F = "weighted_sum_backward"
X = torch.randn(4, 50, generator=torch.Generator().manual_seed(2))
RICH = """
from typing import NamedTuple
from triton.tools.tensor_descriptor import TensorDescriptor

class Sizes(NamedTuple):
    rows: int
    cols: int

@triton.autotune([triton.Config({"SIZE": 32}), triton.Config({"SIZE": 64}, num_warps=8)], key=["n"])
@triton.jit
def _tuned(x_ptr, y_ptr, n, factor, sizes: Sizes, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    mask = at < sizes.rows * sizes.cols
    tl.store(y_ptr + at, factor * tl.load(x_ptr + at, mask=mask, other=0.0), mask=mask)

@triton.jit
def _described(x, y):
    y.store([0, 0], x.load([0, 0]))

table = torch.tensor([1.0, 2.0, 3.0, 4.0], device="cuda")

def weighted_sum_backward(x):
    y = torch.empty_like(x)
    _tuned[lambda meta: (triton.cdiv(200, meta["SIZE"]),)](x, y, 200, 2.5, Sizes(4, 50))
    wide = torch.nn.functional.pad(y, (0, 14), value=float("inf")).clamp(max=9.0)
    z = torch.empty_like(wide)
    _described[(1,)](TensorDescriptor.from_tensor(wide, [4, 64]), TensorDescriptor.from_tensor(z, [4, 64]))
    parts = torch.cat([z[:, :50], y.to(torch.bfloat16).float()]).sum(0) * table.sum()
    _ = x.sum().item()
    y.mul_(2.0)
    return copied(y), parts
"""
WRONG: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**40, 1.5, float("nan"), float("inf"), "", "x" * 3_000, "t",
    [], [[]], {}, {"t": 0}, {"t": 10**9}, {"t": -1}, {"dtype": "float32"}, {"dtype": "Tensor"}, {"f": "nan"},
    {"descriptor": 0}, {"tuple": [1]}, {"namedtuple": {"name": "A", "fields": ["__class__"]}, "values": [1]},
    *(
        {"kernel": 0},
        {"kernel": 99},
        {"constexpr": 1},
        {"t": 0, "as": "float64"},
        {"x": "Generator"},
        "aten::set_.source",
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def at():
    with desk() as opened:
        opened.take(RICH)
        yield opened


@pytest.fixture(scope="module")
def recorded(at):
    said, data = at.pair.record(request(F, "call", {}), [X])
    assert said == Recorded(asked=False)
    return json.loads(bytes(data.tolist()))


def sent(value) -> torch.Tensor:
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    return torch.frombuffer(bytearray(content or b" "), dtype=torch.uint8)


def places(value, path=()):
    """The paths to all that a value holds."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def mutated(original, rng):
    """The program with one to three changes: other values, other places' values, things left out, doubled, renamed."""
    changed = copy.deepcopy(original)
    for _ in range(rng.randint(1, 3)):
        every = list(places(changed))
        *path, last = rng.choice(every)
        holder = at_path(changed, path)
        match rng.randrange(6):
            case 0 | 1:
                holder[last] = copy.deepcopy(rng.choice(WRONG))
            case 2:
                holder[last] = copy.deepcopy(at_path(changed, rng.choice(every)))
            case 3:
                del holder[last]
            case 4 if isinstance(holder, list):
                holder.insert(last, copy.deepcopy(rng.choice(holder)))
            case 5 if isinstance(holder[last], int):
                holder[last] += rng.choice([-1, 1, 3, 1 << 20, 1 << 40])
            case _:
                holder[last] = copy.deepcopy(rng.choice(WRONG))
    return changed


def at_path(value, path):
    for key in path:
        value = value[key]
    return value


def is_well_formed(read: Program) -> None:
    """What whoever plays a program takes for granted."""
    for view in read.views:
        numbers = (view.storage, view.offset, *view.sizes, *view.strides)
        assert all(type(n) is int and 0 <= n <= MAX_NUMBER for n in numbers)
        assert len(view.sizes) == len(view.strides)
    for step in read.steps:
        assert type(step) in programs.KINDS.values()
        if isinstance(step, Operation):
            assert 0 <= step.operation < len(read.operations)
            assert 0 <= step.line < len(read.lines)
            assert all(0 <= view < len(read.views) for view in step.made)
            assert isinstance(step.args, list)
            assert isinstance(step.kwargs, dict)
    assert all(0 <= view < len(read.views) for group in read.results for view in group)


def test_a_recorders_own_program_is_read(recorded):
    read = program_size.read(sent(recorded))
    assert json.loads(bytes(read.encoded().tolist())) == recorded
    assert {type(step) for step in read.steps} >= {Operation, Launch, Constant, Read, Inputs}


@pytest.mark.parametrize("seed", [*range(1), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 4))])
def test_a_changed_program_is_refused_or_well_formed(recorded, seed):
    """No other exception than Unreadable, whatever it is"""
    rng, n_read = random.Random(seed), 0
    for _ in range(1_500):
        changed = mutated(recorded, rng)
        try:
            is_well_formed(program_size.read(sent(changed)))
        except Unreadable:
            continue
        n_read += 1
    assert n_read > 100  # some are harmless


def test_garbled_bytes_are_refused(recorded):
    rng, whole = random.Random(0), json.dumps(recorded).encode()
    for _ in range(1_000):
        garbled = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            garbled[rng.randrange(len(garbled))] = rng.randrange(256)
        try:
            is_well_formed(
                program_size.read(sent(bytes(garbled[: rng.choice([len(garbled), rng.randrange(len(garbled))])])))
            )
        except Unreadable:
            continue


LINES: dict[str, Any] = {"lines": [["", 0, ""]]}
EMPTY: dict[str, Any] = json.loads(bytes(Program().encoded().tolist()))


def nested(depth):
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "changed",
    [
        b"", b"[]", b"null", b"{" * 5_000, b"[" * 100_000, b'"\xff"', b'{"a": 1, "a": 2}', b"NaN", b"1" * 5_000,
        {**EMPTY, "more": 1},
        {**EMPTY, "bare": 1},
        {**EMPTY, "steps": [["launch"]]},
        {**EMPTY, "steps": [["mark"]]},
        {**EMPTY, "steps": [["again", 1]]},
        {**EMPTY, "steps": [[["again"]]]},
        {**EMPTY, "steps": [["free", [-1]]]},
        {**EMPTY, "steps": [["free", [True]]]},
        {**EMPTY, "storages": [[0, programs.MAX_STORAGE + 1]]},
        {**EMPTY, "storages": [[0]]},
        {**EMPTY, "views": [[0, "float33", 0, [1], [1]]]},
        {**EMPTY, "views": [[0, ["float32"], 0, [1], [1]]]},
        {**EMPTY, "views": [[0, "float32", 0, [1], [1, 1]]]},
        {**EMPTY, "views": [[0, "float32", 0, [1] * 65, [1] * 65]]},
        {**EMPTY, "results": [[0]]},
        {**EMPTY, "kernels": [1]},
        {**EMPTY, "kernels": [{}] * (programs.MOST["kernels"] + 1)},
        {**EMPTY, "operations": ["aten::add"]},
        {**EMPTY, "operations": ["aten::add.Tensor; import os"]},
        {**EMPTY, "lines": [["x" * (programs.MAX_TEXT + 1), 1, "f"]]},
        {**EMPTY, "operations": ["aten::add.Tensor"], **LINES, "steps": [["op", 0, nested(40), {}, [], 0]]},
        {**EMPTY, "operations": ["aten::add.Tensor"], **LINES, "steps": [["op", 0, [{"t": 0}], {}, [], 0]]},
    ],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
def test_what_is_no_program_is_refused(changed):
    with pytest.raises(Unreadable):
        program_size.read(sent(changed))


def test_limits_are_those_that_are_stated(monkeypatch):
    """Hundreds of thousands of steps are read; what is beyond is told in a sentence"""
    step = ["free", []]
    assert len(program_size.read(sent({**EMPTY, "steps": [step] * 400_000})).steps) == 400_000
    monkeypatch.setitem(programs.MOST, "steps", 10)
    with pytest.raises(Unreadable, match="more than 10 steps"):
        program_size.read(sent({**EMPTY, "steps": [step] * 11}))
    monkeypatch.setattr(program_size, "MAX_BYTES", 1 << 20)
    with pytest.raises(Unreadable, match="at most 1 are played"):
        program_size.read(torch.zeros((1 << 20) + 1, dtype=torch.uint8))


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (["foo", 1], "step 0: unknown kind 'foo'"),
        (["again", 1], "step 0: again has 0 fields, got 1"),
        (["launch", 0, [1, 1], {}, {}, None, False, 0], "step 0: grid of launch: a list"),
        (["read", "item", [], 5], "step 0: line of read: 5"),
    ],
)
def test_place_in_a_malformed_program_is_told(step, words):
    with pytest.raises(Unreadable, match=f"^malformed program: {re.escape(words)}$"):
        program_size.read(sent({**EMPTY, **LINES, "steps": [step]}))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_player_plays_any_of_them_or_fails_the_call(at, recorded, seed):
    """What it says is what a player says, and hardly any ends it"""
    rng, deaths, played = random.Random(seed), 0, 0
    asked, said = request(F, "call", {}), Recorded(asked=False)
    while played < 150:
        changed = sent(mutated(recorded, rng))
        try:
            program_size.read(changed)
        except Unreadable:
            continue
        played += 1
        try:
            reply, _ = at.pair._play(asked, [X], said, changed)
        except WorkerDied:
            deaths += 1
        else:
            assert isinstance(reply, Ok | NoResult)
            assert not isinstance(reply, Broken), reply
        at.pair.restart()
    assert deaths <= 3
    came, results = at.pair.ask(asked, [X])
    assert isinstance(came, Ok), came
    assert torch.equal(results[0], X * 5)


@pytest.mark.parametrize("one", ["[],", "{},", "1,", '"",'])
def test_values_are_counted_before_they_are_made(one):
    """A program of 60 MiB of empty lists would take 1.7 GB"""
    text = '{"views": [' + one * 2_100_000 + "0]}"
    data = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
    with pytest.raises(Unreadable, match="values; at most 2,000,000"):
        program_size.read(data)
