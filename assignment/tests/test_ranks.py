"""Calls on several ranks: each rank recorded by itself, all played on one heap."""

import re
import threading
import time
from types import SimpleNamespace

import pytest
import torch

from assignment.judge.door import Run, SubmissionError
from assignment.judge.replies import Failed, Fault, Ok, Raised
from assignment.protocol.requests import COLUMNS, LANES, Call, Ranks
from assignment.sandbox.worker_client import WorkerDied
from assignment.tests.pairs import FILE, F, defined
from assignment.tests.test_pair_gpu import PLAYED, Gpu
from tests import operators
from tests.operators import Function, Operator, Problem, called

ABOUT = called(F)["about"] | {
    "results": ["y"],
    "heap": {"buffer": 1, "signals": 2},
    "tables": [[3, 1], [4, 2]],
}
KERNELS = """
@triton.jit
def _push(x_ptr, buffers, pads, rank, call, n, RANKS: tl.constexpr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    for r in tl.static_range(RANKS):
        to = tl.load(buffers + r).to(tl.pointer_type(tl.float32))
        tl.store(to + ((call - 1) * RANKS + rank) * n + at, x, mask=at < n)
    tl.debug_barrier()
    for r in tl.static_range(RANKS):
        tl.atomic_add(tl.load(pads + r).to(tl.pointer_type(tl.int32)) + rank, 1, sem="release", scope="sys")

@triton.jit
def _take(buffer, signals, y_ptr, rank, call, n, RANKS: tl.constexpr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    y = tl.zeros((SIZE,), tl.float32)
    for r in range(rank + 1):
        while tl.atomic_add(signals + r, 0, sem="acquire", scope="sys") < call:
            pass
        tl.debug_barrier()
        y += tl.load(buffer + ((call - 1) * RANKS + r) * n + at, mask=at < n, other=0.0)
    tl.store(y_ptr + at, y, mask=at < n)

"""
PUSH = "_push[(1,)](x, buffers, pads, rank, call, x.numel(), buffers.numel(), 64)"
TAKE = "y = torch.empty_like(x)", "_take[(1,)](buffer, signals, y, rank, call, 50, buffers.numel(), 64)", "return y"


def submission(*lines, before=""):
    """One whose result is the sum of what this rank and those before it have pushed."""
    head = "def weighted_sum_forward(x, buffer, signals, buffers, pads, rank=0, call=1):"
    return defined(*lines, before=KERNELS + before).replace("def weighted_sum_forward(x):", head)


def inputs(ranks, seed=0):
    rng = torch.Generator().manual_seed(seed)
    heap = [[torch.zeros(2 * ranks, 50), torch.zeros(ranks, 8, dtype=torch.int32)] for _ in range(ranks)]
    tables = [[torch.zeros(ranks, dtype=torch.int64) for _ in range(2)] for _ in range(ranks)]
    return [[torch.randn(50, generator=rng), *heap[rank], *tables[rank]] for rank in range(ranks)]


def ask(at, code, *calls):
    at.take(code)
    request = Ranks(function=F, about=ABOUT, options={}, ranks=len(calls[0]), calls=len(calls))
    later = [[[call[rank][0], *calls[0][rank][1:]] for rank in range(len(call))] for call in calls]
    return at.pair.ask(request, [tensor for call in later for rank in call for tensor in rank])


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_hear_of_each_other_on_the_heap(at, ranks):
    """In two calls on the same buffers, with a part for each"""
    calls = [inputs(ranks, seed) for seed in (1, 2)]
    reply, results = ask(at, submission(PUSH, *TAKE), *calls)
    assert isinstance(reply, Ok), reply
    assert (reply.evidence, reply.doubts, reply.unstored) == ((), (), ())
    expected = [sum(call[r][0] for r in range(rank + 1)) for call in calls for rank in range(ranks)]
    for came, right in zip(results[:-2], expected, strict=True):
        torch.testing.assert_close(came, right)


def test_a_table_is_not_read_by_host_code(at):
    for read in ("buffers.tolist()", "pads[0].item()", "int(buffers[-1])"):
        reply, _ = ask(at, submission(read, PUSH, *TAKE), inputs(2))
        assert isinstance(reply, Failed), reply
        assert re.match(r"on rank \d: host code reads a table of addresses", reply.message), reply.message
    reply, _ = ask(at, submission("buffers.numel(), pads.device, buffers.contiguous()", PUSH, *TAKE), inputs(2))
    assert isinstance(reply, Ok), reply


def test_what_a_rank_raises_names_it(at):
    reply, _ = ask(at, submission("if rank == 1 and call == 2: raise ValueError('no')", PUSH, *TAKE), *[inputs(2)] * 2)
    assert isinstance(reply, Raised), reply
    assert reply.message.startswith("on rank 1: ValueError: no")


def test_a_call_after_those_of_ranks_begins_anew(at):
    """Also after one that has raised"""
    kept = "kept.append(rank)", "assert len(kept) == 1", "if rank == 1: raise KeyError", PUSH, *TAKE
    reply, _ = ask(at, submission(*kept, before="kept = []\n"), inputs(2))
    assert isinstance(reply, Raised), reply
    reply, _ = at.pair.ask(Call(function=F, about=ABOUT, options={}), inputs(1)[0])
    assert isinstance(reply, Ok), reply


def test_ranks_share_no_module(at):
    """As under torchrun, where each is a process; what one keeps it has in its next call"""
    kept = "kept.append(rank)", "assert kept == [rank] * call, kept"
    reply, _ = ask(at, submission(*kept, PUSH, *TAKE, before="kept = []\n"), *[inputs(3)] * 2)
    assert isinstance(reply, Ok), reply


def test_a_rank_knows_its_heap_by_its_address(at):
    """In all its calls, and tables too; other inputs are new"""
    key = "key = tuple(t.data_ptr() for t in (buffer, signals, buffers, pads))"
    kept = key, "kept.append((key, x))", "assert {one for one, _ in kept} == {key} and len(kept) == call, kept"
    reply, _ = ask(at, submission(*kept, PUSH, *TAKE, before="kept = []\n"), *[inputs(2)] * 2)
    assert isinstance(reply, Ok), reply


def test_a_kernel_stores_to_the_heap_and_to_no_input(at):
    spoilt = "_take[(1,)](buffer, signals, x, rank, call, 50, buffers.numel(), 64)"
    reply, _ = ask(at, submission(PUSH, spoilt, *TAKE), inputs(2))
    assert isinstance(reply, Fault), reply
    assert "argument 0 of the call" in reply.message
    assert "on rank 0" in reply.message
    own = "_copy[(1,)](x, buffer[rank], 50, 64)", "buffer[rank].copy_(x)", "return copied(buffer[rank])"
    reply, _ = ask(at, submission(*own), inputs(2))
    assert isinstance(reply, Ok), reply


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("return buffer[0]", "a result shares its memory with an input"),
        ("kept.append(x + 0) if not kept else None; return kept[0]", "a result lies in the memory of an earlier call"),
    ],
)
def test_results_are_new_memory(at, line, said):
    reply, _ = ask(at, submission(PUSH, line, before="kept = []\n"), *[inputs(2)] * 2)
    assert isinstance(reply, Failed), reply
    assert reply.message.startswith(f"on rank 0: {said}")


def test_values_from_the_heap_are_the_work_of_kernels(at):
    """Whoever's they are; what nothing has written there is told"""
    copied = "_push[(1,)](x, buffers, pads, rank, call, 50, buffers.numel(), 64)", "return buffer[rank].clone()"
    reply, _ = ask(at, submission(*copied), inputs(2))
    assert isinstance(reply, Ok), reply
    assert not reply.evidence
    reply, _ = ask(at, submission("return copied(buffer[rank + 2])"), inputs(2))
    assert isinstance(reply, Ok), reply
    assert "on rank 0: never stored: 50 of the 50 elements of y" in reply.unstored[0]
    reply, _ = ask(at, submission("return buffer[rank + 2].clone()"), inputs(2))
    assert isinstance(reply, Ok), reply
    assert (len(reply.unstored), reply.evidence) == (2, ())
    pushed = "_push[(1,)](x.exp() if rank == 0 else x, buffers, pads, rank, call, 50, buffers.numel(), 64)"
    reply, _ = ask(at, submission(pushed, *TAKE), inputs(2))
    assert isinstance(reply, Ok), reply
    assert "aten::exp" in str(reply.evidence), reply.evidence
    reply, _ = ask(at, submission(PUSH, "return x.exp() if rank else copied(x)"), inputs(2))
    assert isinstance(reply, Ok), reply
    assert "elements of the result on rank 1, the first at [0], were computed by aten::exp" in str(reply.evidence)


def test_a_call_by_itself_is_one_of_a_single_rank(at):
    """So that it can be compiled; it goes on with the memory of calls before"""
    at.take(submission("kept.append(copied(x)) if not kept else None", PUSH, *TAKE, before="kept = []\n"))
    for seed in (1, 2):
        request = Call(function=F, about=ABOUT, options={}, notes_constants=True)
        reply, results = at.pair.ask(request, inputs(1, seed)[0])
        assert isinstance(reply, Ok), reply
        assert len(reply.constants_of) == 4 - seed
        torch.testing.assert_close(results[0], inputs(1, seed)[0][0])


OPERATOR = Operator(
    name="pushed",
    file=FILE,
    position=99,
    problems=(Problem("pushed", "", ""),),
    functions=(Function("pushed", "pushed", ("x", "buffer", "signals", "buffers", "pads"), ("y",), "pushed"),),
    heap=("buffer", "signals"),
    tables=(("buffers", "buffer"), ("pads", "signals")),
)


@pytest.fixture
def run(at, monkeypatch):
    """What a test asks, of an operator whose function is `pushed`."""
    known, cached = operators.operators(), (operators.functions, operators.problems, operators.operator_of)
    monkeypatch.setattr(operators, "operators", lambda: (*known, OPERATOR))
    for each in cached:
        each.cache_clear()
    pool = SimpleNamespace(workers=[at.pair], worker_index=0, draws_multiprocessors=False, keeps_launches=False)
    pool.shared = SimpleNamespace(given_up=lambda check: "")
    yield Run(pool, check="a check")  # type: ignore[arg-type]
    monkeypatch.undo()
    for each in cached:
        each.cache_clear()


def test_a_test_has_results_by_call_and_rank(at, run):
    """The heap of later calls is that of the first; the harness makes the tables, and says which rank and call it is"""
    at.take(submission(PUSH, *TAKE).replace(F, "pushed"))
    first, second, third = ([rank[:3] for rank in inputs(3, seed)] for seed in range(3))
    links = run.links("pushed", first, second)
    results = links.results
    assert [len(of_call) for of_call in results] == [3, 3]
    torch.testing.assert_close(results[1][2], sum(x for x, *_ in second))
    assert run.in_context("") == (
        "3 ranks: 1 row of 50, float32: pushed(float32 (50,), float32 (6, 50), int32 (3, 8), int64 (3,), int64 (3,)):"
    )
    assert [lane[:18] for lane in run.lanes] == [f"rank {r} {lane:10} " for r in range(3) for lane in LANES]
    products, moves = (lane[18:] for lane in run.lanes[:2])
    assert (set(products), set(moves), len(moves)) == ({"·"}, {*"·█"}, COLUMNS)
    for moved in (links.distinct, links.requested):  # 50 floats in each call; signals are not counted
        assert moved == [[0 if origin == to else 2 * 200 for to in range(3)] for origin in range(3)]
    at.take(submission(PUSH, "if rank == 2: raise KeyError", *TAKE).replace(F, "pushed"))
    with pytest.raises(SubmissionError, match="on rank 2: KeyError"):
        run.ranks("pushed", third)


def test_a_mistake_is_raised_on_a_rank_by_itself(at, run):
    at.take(submission("if x.dim() > 1: raise ValueError", PUSH, *TAKE).replace(F, "pushed"))
    own = inputs(1)[0]
    run.raises(ValueError, "pushed", own[0][None], *own[1:])
    with pytest.raises(SubmissionError, match="but it returned a result"):
        run.raises(ValueError, "pushed", *own)


class GpuRank:
    """The process of a rank on a GPU, in place of a real one."""

    is_connected = True

    def __init__(self, answer):
        self.answer, self.asked, self.n_ended, self.is_over = answer, [], 0, lambda: False

    def ask(self, request, tensors):
        self.asked.append((request, tensors))
        return self.answer(self, request)

    def end_child(self):
        self.n_ended += 1

    def restart(self):
        """It has nothing of a submission."""


@pytest.fixture
def gpus(at, monkeypatch):
    """Has the pair play on two ranks that answer so."""

    def given(*answers):
        ranks = [GpuRank(answer) for answer in answers]
        monkeypatch.setattr(at.pair._gpu_ranks, "workers", ranks)
        return ranks

    monkeypatch.setattr(at.pair, "_workers", [*at.pair._workers, Gpu()])
    monkeypatch.setattr(at.stage, "ranks_on_gpu", 2)
    yield given
    monkeypatch.undo()


def test_ranks_on_gpus_are_asked_together(at, gpus):
    """Their results count, in the order of those of the simulator, which says what links have moved"""
    both = threading.Barrier(2)

    def answer(gpu, request):
        both.wait(20)
        return PLAYED | {"groups": [1, 1]}, [torch.full((50,), 10.0 * call + request.rank) for call in range(2)]

    ranks = gpus(answer, answer)
    reply, (*results, links, _) = ask(at, submission(PUSH, *TAKE), *[inputs(2)] * 2)
    assert isinstance(reply, Ok), reply
    assert [int(result[0]) for result in results] == [0, 1, 10, 11]
    assert links.shape == (2, 2, 2)
    (first, _), (second, tensors) = (rank.asked[0] for rank in ranks)
    assert (first.rank, second.rank, first.meeting) == (0, 1, second.meeting)
    assert len(tensors) == 2 * (5 + 1)  # inputs and a program for each call


def test_a_rank_that_ends_stops_the_others(at, gpus):
    def waits(gpu, request):
        until = time.monotonic() + 20
        while not gpu.is_over() and time.monotonic() < until:
            time.sleep(0.01)
        raise WorkerDied("timeout", "stopped" if gpu.is_over() else "it was left waiting")

    def fails(gpu, request):
        return {"status": "failed", "message": "no kernel image"}, []

    ranks = gpus(waits, fails)
    reply, _ = ask(at, submission(PUSH, *TAKE), inputs(2))
    assert reply == Failed("on rank 1: no kernel image")
    assert [rank.n_ended for rank in ranks] == [1, 1]
    gpus(waits, lambda *_: (_ for _ in ()).throw(WorkerDied("crashed", "this one came first")))
    with pytest.raises(WorkerDied, match="this one came first"):
        ask(at, submission(PUSH, *TAKE), inputs(2))


def test_what_faults_in_the_simulator_is_not_played_on_gpus(at, gpus):
    """Nor are calls on more ranks than they are asked for"""
    for code, n in ((submission("if not rank: " + PUSH, *TAKE), 2), (submission(PUSH, *TAKE), 3)):
        ranks = gpus(None, None)
        reply, _ = ask(at, code, inputs(n))
        assert isinstance(reply, Fault if n == 2 else Ok), reply
        assert [rank.asked for rank in ranks] == [[], []]
