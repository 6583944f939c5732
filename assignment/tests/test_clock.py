"""The clock, on a machine without a GPU: the grader's memory is ordinary memory, and time is made up."""

import contextlib
import random
import types
from typing import Any

import pytest
import torch

from assignment.grading import timed
from assignment.grading.requests import WrongReturn
from assignment.timing import clock, memory, workloads
from tests import compare, oracle

WAY_S, GIVE_S, POISON_S = 1e-3, 3e-4, 8e-3  # there and back; handing over; overwriting the inputs
QUIET = clock.Quiet(WAY_S, POISON_S)
WORK = workloads.rmsnorm(48, 64, torch.float32)


class FakeMemory(memory.Memory):
    """Without a GPU. `after_s` is what a worker still computes when its inputs are overwritten."""

    def __init__(self) -> None:
        self._bytes = torch.zeros(1 << 20, dtype=torch.uint8)
        self._normal = torch.randn(1 << 14)
        self._shared = (0, b"", 1 << 20, 0, b"", 0, b"", False)
        self.after_s = 0.0

    def settle(self):
        pass

    def poison(self):
        self._bytes.fill_(memory.POISON)
        after_s, self.after_s = self.after_s, 0.0
        return POISON_S + after_s


class Player:
    """A function with a made-up time a call."""

    def __init__(self, function, call_s):
        self.function, self.call_s = function, call_s
        self.chance = random.Random(0)

    def ask(self, kind, work, more=None, referee=None):
        reply, _ = timed.answer(self.function, {"kind": kind, "options": work.options, "id": referee, **(more or {})})
        n_calls = len(timed._kept)
        jitter = self.chance.uniform(-5e-5, 5e-5)
        if kind == "give":
            return reply, GIVE_S + jitter
        return reply | {"events_s": n_calls * self.call_s}, WAY_S + n_calls * self.call_s + jitter


@contextlib.contextmanager
def started(_, referee):
    """In one process."""
    yield referee.ready()
    referee.over()


@pytest.fixture
def track(monkeypatch):
    """A track in ordinary memory, and workers that have no CUDA."""
    there = FakeMemory()
    event = types.SimpleNamespace(record=lambda: None, elapsed_time=lambda _: 1.0)
    monkeypatch.setattr(timed, "Event", lambda **_: event)
    monkeypatch.setattr(timed, "synchronize", lambda: None)
    monkeypatch.setattr(timed, "line", [None])
    monkeypatch.setattr(timed, "started", started)
    monkeypatch.setattr(timed, "deterministic", lambda *_, **__: None)
    monkeypatch.setattr(timed, "shared", lambda _: there._bytes.untyped_storage())
    made = clock.Track(WORK, there)
    return made


def honest(x, weight):
    y, rstd = oracle.rmsnorm_forward(x, weight)
    return y.float(), rstd.float()


def copied(x, weight):
    return x.clone(), torch.zeros(len(x))


def race(track, function, call_s=1e-4, ask=None, rounds=12):
    """Against a copy that takes twice as long, and a peer that takes three times."""
    player, copy, peer = Player(function, call_s), Player(copied, 2e-4), Player(honest, 3e-4)
    contestants = [
        clock.Contestant("submission", ask or player.ask),
        clock.Contestant("copy", copy.ask, is_trusted=True),
        clock.Contestant("peer", peer.ask, is_trusted=True),
    ]
    for contestant in contestants:
        track.warm_up(contestant)
    return clock.race_on(track, contestants, QUIET, rounds)


def test_a_call_takes_what_it_takes(track):
    came = race(track, honest)
    assert came.timings["submission"].seconds == pytest.approx(1e-4, rel=0.02)
    assert came.ratios["copy"][0] == pytest.approx(2, rel=0.02)
    assert came.ratios["peer"][0] == pytest.approx(3, rel=0.02)
    assert 0 < came.timings["submission"].margin < 0.5
    assert came.timings["submission"].disagreement < 0.02


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


PUT_OFF = {  # the share of the calls, in a share of the rounds
    "all": (1.0, 1.0),
    "half of them": (0.5, 1.0),
    "all, in six of ten rounds": (1.0, 0.6),
    "all, in eight of ten rounds": (1.0, 0.8),
    "all, in three of ten rounds": (1.0, 0.3),
}


@pytest.mark.parametrize(("share", "of_rounds"), PUT_OFF.values(), ids=PUT_OFF)
def test_work_that_is_put_off_counts(track, share, of_rounds):
    """A run that returns at once, and results that are computed when they are asked for"""
    here, later, chance = Player(honest, 1e-4), Player(honest, 1e-4 * (1 - share)), random.Random(1)
    is_later = [False]

    def ask(kind, work, more=None, referee=None):
        if kind == "run":
            is_later[0] = chance.random() < of_rounds
        reply, seconds = (later if is_later[0] else here).ask(kind, work, more, referee)
        late = (
            sum(chance.random() < share for _ in range(min(clock.MOST_GIVEN, track.n_slots)))
            if kind == "give" and is_later[0]
            else 0
        )
        return reply, seconds + late * 1e-4

    came = race(track, honest, ask=ask, rounds=40)
    assert came.timings["submission"].seconds >= 0.9e-4


def test_work_that_goes_on_while_the_inputs_are_overwritten_counts(track):
    """A third of the calls is not over when the worker says so"""
    player = Player(honest, 1e-4 * 2 / 3)

    def ask(kind, work, more=None, referee=None):
        track._memory.after_s = track.n_slots * 1e-4 / 3 if kind == "run" else 0.0
        return player.ask(kind, work, more, referee)

    came = race(track, honest, ask=ask)
    assert came.timings["submission"].seconds == pytest.approx(1e-4, rel=0.05)
    assert not came.is_busy


def test_who_uses_the_gpu_while_others_are_asked_is_seen(track):
    records = {"submission": clock.Record(), "copy": clock.Record()}
    submission = clock.Contestant("submission", Player(honest, 1e-4).ask)
    copy = clock.Contestant("copy", Player(copied, 2e-4).ask, is_trusted=True)
    track.warm_up(submission)
    for contestant in [submission, copy] * 5:
        track.round(contestant, records[contestant.name], POISON_S)
    assert not clock.judged(records, ["copy"], QUIET, track.n_slots).is_busy
    records["copy"].after = [POISON_S] * 10
    assert clock.judged(records, ["copy"], QUIET, track.n_slots).is_busy


def test_what_is_known_before_a_submission_is_let_in(track):
    quiet = clock.listen(WORK, clock.Contestant("copy", Player(copied, 2e-4).ask, is_trusted=True), track._memory)
    assert quiet.way_s == pytest.approx(WAY_S, rel=0.1)
    assert quiet.poison_s == POISON_S


def test_inputs_that_a_worker_changes_do_not_change_what_is_right(track, monkeypatch):
    """Whatever is written to the grader's memory, a thread makes all weights zero at once; and so are the results"""
    fill = workloads.Workload.fill

    def overwritten(self, *arguments):
        fill(self, *arguments)
        for slot in timed._slots:
            slot[1].zero_()

    monkeypatch.setattr(workloads.Workload, "fill", overwritten)
    with pytest.raises(compare.Mismatch):
        race(track, lambda x, weight: (torch.zeros_like(x), honest(x, weight)[1]))


def test_the_memory_is_let_go(track, monkeypatch):
    race(track, honest, rounds=2)
    monkeypatch.setattr(timed, "shared", types.SimpleNamespace(cache_clear=lambda: None))
    timed.answer(honest, {"kind": "release"})
    assert not timed._slots
    assert not timed._outputs
    assert not timed._kept


@pytest.mark.parametrize(
    "work",
    [
        workloads.weighted_sum(48, 64, torch.bfloat16),
        workloads.weighted_sum(48, 64, torch.float32, backward=True),
        workloads.rmsnorm(48, 64, torch.bfloat16),
        workloads.rmsnorm(48, 64, torch.bfloat16, backward=True),
        workloads.rmsnorm(64, 64, torch.bfloat16, backward=True),
        workloads.attention(64, 16, torch.bfloat16, is_causal=True, batch=(2, 3)),
        workloads.attention(64, 16, torch.bfloat16, is_causal=True, backward=True, batch=(2, 3)),
    ],
    ids=lambda work: f"{work.function} {work.inputs}"[:40],
)
@pytest.mark.parametrize("is_strict", [True, False], ids=["strict", "a glance"])
def test_a_part_of_the_results_is_checked(work, is_strict, monkeypatch):
    """Right ones pass, and wrong ones fail wherever they are, if one looks often enough"""
    there = FakeMemory()
    tensors, _ = there.lay_out([[*work.inputs.values()]])
    monkeypatch.setattr(workloads, "attend", lambda *inputs, **options: oracle.attention_forward(*inputs, **options))
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
