"""Race the reference and those that cheat, on a GPU: `python -m assignment.bank races [NAME ...] [--times N]`.

Without --times: each cheat of cheats/racing.py and cheats/racing_kernels.py beside the honest reference, both in this
session. A cheat is held where it gets no points, or no more than GAIN above what it is without the cheat, or where the
staff are told. With --times: one submission, timed again and again, and how far its ratios spread; with --near, made as
slow as full points allow. With --events: the reference, by this clock and by CUDA events around plain calls of
its functions in this process.
"""

import argparse
import functools
import importlib
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from assignment.bank.bugs import gathered
from assignment.bank.cheats.racing import RACERS, SLOWED, Racer
from assignment.bank.cheats.racing_kernels import KERNEL_RACERS
from assignment.calling import timed
from assignment.operators.workloads import built
from assignment.pytest_private import TestFailed
from assignment.sandbox import rungs
from assignment.sandbox.stage import Stage
from assignment.submission import PACKAGE, REFERENCE, Submission, read
from assignment.timing.clock import TRIES, Track
from assignment.timing.speed import Speed, SpeedSession

EVENTS, TURNS = 0.02, 5  # so far apart may the two clocks be; timings by each
GAIN = 0.05  # of the honest ratio: twice what two timings of one submission differ by
CASES = gathered("races", "CASES")  # by function


@contextmanager
def opened(submission: Submission) -> Iterator[SpeedSession]:
    stage = Stage(submission, "cuda")
    stage.is_endless = True
    session = SpeedSession(stage, rungs.choose(rungs.AUTO, "cuda"))
    try:
        yield session
    finally:
        session.close()
        stage.close()


def raced(session: SpeedSession, function: str) -> tuple[float, bool, str]:
    """Return the ratio to the peer, 0 for what gets no points; whether the staff will look at it; and what was said."""
    shape, peer, _, options = CASES[function]
    speed = Speed(session)
    try:
        speed(function, shape, torch.bfloat16, against=peer, reach=0.0, **options)
    except (AssertionError, TestFailed) as error:
        return 0.0, False, " ".join(str(error).split())[:160]
    return speed.ratio, bool(speed.doubts), "; ".join(map(str, speed.doubts)) or speed.measured


def cheats(names: list[str]) -> int:
    reference, honest, n_open = read(REFERENCE), {}, 0
    chosen = [racer for racer in (*RACERS, *KERNEL_RACERS) if not names or any(name in racer.name for name in names)]
    with opened(reference) as session:
        for function in dict.fromkeys(racer.function for racer in chosen):
            honest[function], _, said = raced(session, function)
            print(f"{'honest':<40} {honest[function]:6.3f}  {said}", flush=True)
        for racer in chosen:
            beside = honest[racer.function]
            if racer.honest:
                session.replace(laid_over(reference, replace(racer, source=racer.honest)))
                beside = raced(session, racer.function)[0]
            session.replace(laid_over(reference, racer))
            ratio, is_seen, said = raced(session, racer.function)
            is_held = ratio <= (1 + GAIN) * beside
            n_open += not (is_held or is_seen)
            verdict = "held" if is_held else "gains, needs review" if is_seen else "GAINS"
            print(f"{racer.name:<40} {ratio:6.3f}  {verdict}: {said}", flush=True)
    print(f"{len(chosen) - n_open} of {len(chosen)} held")
    return 1 if n_open else 0


def laid_over(reference: Submission, racer: Racer) -> Submission:
    files = dict(reference.files)
    for name, content in racer.files.items():
        files[name] = files.get(name, b"") + content
    return Submission(files)


def spread(path: Path, times: int, names: list[str], is_near: bool) -> int:
    submission = read(path)
    with opened(submission) as session:
        for function in names or CASES:
            if is_near:
                session.replace(submission)
                share = raced(session, function)[0] / CASES[function][2] - 1
                session.replace(laid_over(submission, slowed(function, share)))
            ratios = sorted(raced(session, function)[0] for _ in range(times))
            low, middle, high = statistics.quantiles(ratios, n=4)
            print(
                f"{function:<24} {middle:.3f} × {CASES[function][1]}: quartiles {(high - low) / middle:.1%} apart, "
                f"all of {times} within {(ratios[-1] - ratios[0]) / middle:.1%} ({ratios[0]:.3f} to {ratios[-1]:.3f})",
                flush=True,
            )
    return 0


def beside_events(names: list[str]) -> int:
    """Print what both clocks say of the reference, in turns; returns 1 where they are more than EVENTS apart."""
    sys.path.insert(0, str(REFERENCE))
    worst = 0.0
    with opened(read(REFERENCE)) as session:
        for function in names or CASES:
            by_clock, by_events = [], []
            for _ in range(TURNS):
                by_clock.append(played(session, function))
                by_events.append(called(session, function))
            ours, theirs = (statistics.median(seconds) for seconds in (by_clock, by_events))
            worst = max(worst, abs(ours / theirs - 1))
            said = f"{ours * 1e6:8.1f} µs, by events {theirs * 1e6:8.1f} µs: {ours / theirs - 1:+.1%}"
            print(f"{function:<24} {said}", flush=True)
    print(f"{worst:.1%} apart at the most")
    return 1 if worst > EVENTS else 0


def played(session: SpeedSession, function: str) -> float:
    """Return the seconds a call by the grader's clock."""
    shape, peer, _, options = CASES[function]
    speed = Speed(session)
    speed(function, shape, torch.bfloat16, against=peer, reach=0.0, **options)
    return speed.seconds


def called(session: SpeedSession, function: str) -> float:
    """Return the seconds a call by CUDA events around a row of plain calls, each on inputs of its own."""
    shape, _, _, options = CASES[function]
    workload = built(function, shape, torch.bfloat16, options)
    track = Track(workload, session.memory)
    modules = [importlib.import_module(f"cs336_kernels.{path.stem}") for path in (REFERENCE / PACKAGE).glob("[!_]*.py")]
    call = next(getattr(module, function) for module in modules if hasattr(module, function))
    for slot in track.slots:  # tuned, compiled, and memory at hand
        call(*slot, **options)
    for _ in range(TRIES):
        track.fill()
        session.memory.settle()
        took = timed.taken([functools.partial(call, *slot, **options) for slot in track.slots], [])
        if took.is_held:
            break
    return took.seconds


def slowed(function: str, share: float) -> Racer:
    """Return a racer that does the work, and this share of it once more."""
    return Racer("slowed", function, SLOWED.replace("SHARE", f"{max(share, 0.0):.4f}"))


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", help="parts of names of cheats; with --times, functions")
    parser.add_argument("--times", type=int, metavar="N", help="time one submission so often, and no cheat")
    parser.add_argument("--near", action="store_true", help="with --times: made as slow as full points allow")
    parser.add_argument("--events", action="store_true", help="time the reference by CUDA events too, and no cheat")
    parser.add_argument("--path", type=Path, default=REFERENCE, help="that submission (default: the reference)")


def main(names: list[str], times: int | None, near: bool, events: bool, path: Path) -> int:
    if not torch.cuda.is_available():
        print("races are run on a GPU, and PyTorch finds none", file=sys.stderr)
        return 2
    if events:
        return beside_events(names)
    return spread(path, times, names, near) if times else cheats(names)
