"""The clock, on a machine without a GPU: the grader's memory is ordinary memory, and time is made up."""

import contextlib
import dataclasses
import functools
import random
import types
from typing import Any

import pytest
import torch

from assignment.calling import timed
from assignment.calling.requests import WrongReturn
from assignment.judge import replies
from assignment.operators import parts
from assignment.operators.flash_attention import workload as flash_workload
from assignment.operators.flash_attention.workload import workload as attention
from assignment.operators.rmsnorm.workload import workload as rmsnorm
from assignment.operators.weighted_sum.workload import workload as weighted_sum
from assignment.operators.workloads import Spec, Workload
from assignment.protocol.replies import written
from assignment.protocol.requests import Prepare, Release, TakeTurns
from assignment.tests.specification import oracle
from assignment.timing import clock, contestants, gpu_buffer
from tests import compare
from tests.operators import called

WORK = rmsnorm(48, 64, torch.float32)


class FakeMemory(gpu_buffer.BufferMemory):
    """Without a GPU."""

    def __init__(self) -> None:
        self._bytes = torch.zeros(1 << 20, dtype=torch.uint8)
        self._normal = torch.randn(1 << 14)
        self._shared = (0, b"", 1 << 20, 0, b"", 0, b"", False)

    def settle(self):
        pass

    def poison(self):
        self._bytes.fill_(gpu_buffer.POISON)


class Player:
    """A function with a made-up time a call."""

    def __init__(self, function, call_s):
        self.function, self.call_s = function, call_s
        self.chance = random.Random(0)

    def ask(self, kind, work):
        reply, _ = timed.answer(self.called, kind(**called(work.function), options=work.options))
        return replies.read(written(reply), 0)

    def called(self, *inputs, **options):
        clock_s[0] += self.call_s + self.chance.uniform(-1e-7, 1e-7)
        return self.function(*inputs, **options)


clock_s = [0.0]


class Event:
    """One of a GPU that runs by the made-up clock."""

    def __init__(self, **_: bool) -> None:
        self.at_s = 0.0

    def record(self):
        self.at_s = clock_s[0]

    def query(self):
        return False

    def elapsed_time(self, end):
        return 1e3 * (end.at_s - self.at_s)


@pytest.fixture
def track(monkeypatch):
    """A track in ordinary memory, and workers that have no CUDA."""
    there = FakeMemory()
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(timed, "sleep_on_gpu", lambda _: None)
    monkeypatch.setattr(timed, "shared", lambda _: there._bytes.untyped_storage())
    return clock.Track(WORK, there)


def honest(x, weight):
    y, rstd = oracle.rmsnorm_forward(x, weight)
    return y.float(), rstd.float()


def copied(x, weight):
    return x.clone(), torch.zeros(len(x))


def race(track, function, rounds=12):
    """Against a copy that takes twice as long, and a peer that takes three times."""
    contestants = [
        clock.Contestant("submission", Player(function, 1e-4).ask),
        clock.Contestant("copy", Player(copied, 2e-4).ask, is_trusted=True),
        clock.Contestant("peer", Player(honest, 3e-4).ask, is_trusted=True),
    ]
    for contestant in contestants:
        track.warm_up(contestant)
    return clock.race_on(track, contestants, rounds)


def test_a_call_takes_what_it_takes(track):
    came = race(track, honest)
    assert came.timings["submission"].seconds == pytest.approx(1e-4, rel=0.02)
    assert came.ratios["copy"][0] == pytest.approx(2, rel=0.02)
    assert came.ratios["peer"][0] == pytest.approx(3, rel=0.02)
    assert 0 < came.timings["submission"].margin < 0.5


def test_more_rounds_where_something_else_kept_the_gpu_busy(track):
    calls = []

    def disturbed(x, weight):
        calls.append(track.n_slots)
        if len(calls) <= 4 * track.n_slots:  # the warm-up, and three of the five rounds that are asked for
            clock_s[0] += 1e-4
        return honest(x, weight)

    contestants = [
        clock.Contestant("copy", Player(copied, 1e-4).ask, is_trusted=True),
        clock.Contestant("submission", Player(disturbed, 1e-4).ask),
    ]
    for contestant in contestants:
        track.warm_up(contestant)
    assert clock.race_on(track, contestants, 5).ratios["submission"][0] == pytest.approx(1, rel=0.02)
    assert len(calls) > 6 * track.n_slots


def by_pointer(known={}):  # noqa: B006
    def function(x, weight):
        return known.setdefault(x.data_ptr(), honest(x, weight))

    return function


def skips_some():
    calls: list[tuple] = []

    def function(x, weight):
        calls.append(honest(x, weight) if len(calls) % 3 else (torch.zeros_like(x), torch.zeros(len(x))))
        return calls[-1]

    return function


def half_of_the_rows(x, weight):
    y, rstd = honest(x, weight)
    y[len(x) // 2 :] = 0
    return y, rstd


@pytest.mark.parametrize("function", [by_pointer(), skips_some(), half_of_the_rows], ids=["replay", "skips", "half"])
def test_wrong_results_are_seen(track, function):
    with pytest.raises(compare.Mismatch):
        race(track, function)


def test_results_that_are_kept_in_the_inputs_memory_are_gone(track):
    """The inputs are poisoned before results are asked for"""
    with pytest.raises(compare.Mismatch):
        race(track, lambda x, weight: (x, honest(x, weight)[1]))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x, weight: x, "returned 1 tensors, expected 2"),
        (lambda x, weight: (x.half(), x[:, 0]), "result 1 is torch.float16"),
        (lambda x, weight: (x, None), "returned None"),
    ],
)
def test_results_have_the_form_that_is_expected(track, function, words):
    with pytest.raises(WrongReturn, match=words):
        race(track, function)


def test_a_single_slot_is_timed_too(track):
    timed.slots[:], timed._kept[:] = [[torch.zeros(1)]], []
    reply, _ = timed.answer(Player(lambda x: x, 1e-4).called, TakeTurns(**called(""), options={}, turns=[0]))
    assert reply.events_s == pytest.approx(1e-4, rel=0.01)


def test_work_that_is_done_ahead_is_timed(track):
    """The first call of a run does the work of all others"""

    class Ahead(Player):
        def called(self, *inputs, **options):
            clock_s[0] += 0 if timed._kept else 1e-4 * track.n_slots
            return self.function(*inputs, **options)

    record = clock.Record()
    contestant = clock.Contestant("submission", Ahead(honest, 0).ask)
    track.hold(contestant)
    track.round(contestant, record)
    assert record.calls == [pytest.approx(1e-4)]


def test_the_gpu_waits_as_long_as_launching_took(track, monkeypatch):
    """Up to a limit; a run in which it began too soon is repeated, but not for ever"""
    host_s, waits, begun = [0.0], [], iter([True, False, *[True] * clock.TRIES])
    monkeypatch.setattr(timed.time, "perf_counter", lambda: host_s[0])
    monkeypatch.setattr(timed, "sleep_on_gpu", lambda cycles: waits.append(cycles / timed.CYCLES_A_S))
    monkeypatch.setattr(Event, "query", lambda event: next(begun))

    def launched(x, weight):
        host_s[0] += 1e-3
        return honest(x, weight)

    contestant, record = clock.Contestant("submission", Player(launched, 1e-4).ask), clock.Record()
    track.hold(contestant)
    track.round(contestant, record)
    long_s = timed.LONGER * 1e-3 * track.n_slots
    assert waits == [pytest.approx(timed.LEAST_S), pytest.approx(min(long_s, timed.MOST_S))]
    assert waits[1] > waits[0]
    track.round(contestant, record)
    assert len(waits) == 2 + clock.TRIES
    assert record.host == [pytest.approx(1e-3)] * 2
    assert record.calls == [pytest.approx(1e-4, rel=0.02)] * 2


def test_the_memory_is_let_go(track, monkeypatch):
    race(track, honest, rounds=2)
    monkeypatch.setattr(timed, "shared", types.SimpleNamespace(cache_clear=lambda: None))
    timed.answer(honest, Release(**called(""), options={}))
    assert not timed.slots
    assert not timed._outputs
    assert not timed._kept


@pytest.mark.parametrize(
    "work",
    [
        weighted_sum(48, 64, torch.bfloat16),
        weighted_sum(48, 64, torch.float32, backward=True),
        rmsnorm(48, 64, torch.bfloat16),
        rmsnorm(48, 64, torch.bfloat16, backward=True),
        rmsnorm(64, 64, torch.bfloat16, backward=True),
        attention(64, 16, torch.bfloat16, is_causal=True, batch=(2, 3)),
        attention(64, 16, torch.bfloat16, is_causal=True, backward=True, batch=(2, 3)),
    ],
    ids=lambda work: f"{work.function} {work.inputs}"[:40],
)
@pytest.mark.parametrize("is_strict", [True, False], ids=["strict", "a glance"])
def test_a_part_of_the_results_is_checked(work, is_strict, monkeypatch):
    """Right ones pass, and wrong ones fail wherever they are, if one looks often enough"""
    there = FakeMemory()
    tensors, _ = there.lay_out([[*work.inputs.values()]])
    monkeypatch.setattr(flash_workload, "attend", oracle.attention_forward)
    work.fill(tensors[0], there, torch.Generator().manual_seed(0))
    named = dict(zip(work.inputs, tensors[0], strict=True))
    function: Any = {
        "flash_forward_triton": lambda q, k, v: oracle.attention_forward(q, k, v, **work.options),
        "flash_backward_triton": lambda grad_o, q, k, v, o, lse: oracle.attention_backward(
            grad_o, q, k, v, **work.options
        ),
    }.get(work.function) or getattr(oracle, work.function)
    came = function(*named.values())
    right = [
        result.to(spec.dtype)
        for result, spec in zip(came if isinstance(came, tuple) else (came,), work.outputs.values(), strict=True)
    ]
    chance = random.Random(0)
    for _ in range(5):
        check = work.pick(tensors[0], chance, is_strict)
        assert check
        assert check(right) < 1
    for i, result in enumerate(right):
        wrong = [other.clone() for other in right]
        wrong[i] += 1 + result.abs()
        check = work.pick(tensors[0], chance, is_strict)
        assert check
        with pytest.raises(compare.Mismatch):
            check(wrong)


def small(work: Workload) -> Workload:
    """Return a workload with no dimension over 16."""
    inputs = {name: Spec(spec.dtype, tuple(min(16, n) for n in spec.shape)) for name, spec in work.inputs.items()}
    return dataclasses.replace(work, inputs=inputs)


@pytest.mark.parametrize("part", parts("workload"), ids=lambda part: part.__name__.split(".")[-2])
def test_every_input_is_filled(part, monkeypatch):
    """A backward pass gets what a forward pass has left, where memory held NaN before"""
    monkeypatch.setattr(flash_workload, "attend", oracle.attention_forward)
    there = FakeMemory()
    works = {work.function: small(work) for work in part.sweep()}
    assert works
    for work in works.values():
        (slot,), _ = there.lay_out([[*work.inputs.values()]])
        there.poison()
        work.fill(slot, there, torch.Generator().manual_seed(0))
        assert all(tensor.isfinite().all() for tensor in slot), work.function


TURNS = functools.partial(TakeTurns, turns=[])


@pytest.mark.parametrize(("kind", "told"), [(TURNS, {"events_s": 1e-4}), (Prepare, {"peak": 512})], ids=["turns", ""])
def test_what_is_measured_must_be_told(kind, told):
    ok = {"status": "ok", "groups": [], "bare": False}
    for more, is_whole in ((told, True), ({}, False)):
        worker: Any = types.SimpleNamespace(ask=lambda *_, more=more: ({**ok, **more}, []))
        with (
            contextlib.nullcontext()
            if is_whole
            else pytest.raises(contestants.ContestantFailed, match="cannot be read")
        ):
            contestants.ask(worker, kind(**called("rmsnorm_forward"), options={}))
