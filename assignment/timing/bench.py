"""`python grade.py --bench`: a submission beside its peers over many sizes: table, CSV and plot."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from assignment import operators
from assignment.judge import words
from assignment.operators.workloads import COPYING, Workload
from assignment.sandbox.worker_client import WorkerDied
from assignment.timing import clock
from assignment.timing.contestants import SUBMISSION, TITLES, ContestantFailed, PeerFailed, Peers, Submitted
from assignment.timing.gpu_buffer import BufferMemory
from assignment.timing.roof import Roof, measure
from tests.compare import Mismatch

ROUNDS = 5
HEADINGS = TITLES | {  # where a column is as wide as a number
    SUBMISSION: "this",
    COPYING: "copy",
    "compiled": "torch.\ncompile",
    **{name: short for part in operators.parts("workload") for name, short in getattr(part, "HEADINGS", {}).items()},
}
ENOUGH = 3.0  # times as slow as the best: such a peer is left out of larger sizes


@dataclass(frozen=True)
class BenchRow:
    """One contestant at one size."""

    function: str
    dtype: str
    n: int  # queries and keys, or rows
    d: int
    switches: str  # options that are on: "causal"
    contestant: str
    microseconds: float
    low: float
    high: float
    host: float  # microseconds until a call is launched
    tflops: float  # of the products of matrices
    tb_per_s: float  # of the bytes that must move
    roof: float  # the least time that this GPU needs, over this one
    intensity: float  # operations a byte

    @property
    def size(self) -> str:
        dtype = "" if self.dtype == "bfloat16" else f" {self.dtype}"
        return f"{self.n:,} × {self.d:,}{self.switches and f' {self.switches}'}{dtype}"


def sweep(only: Sequence[str]) -> list[Workload]:
    """Return all workloads, or those of functions that begin with one of these names."""
    works = [work for workload in operators.parts("workload") for work in workload.sweep()]
    return [work for work in works if not only or work.function.startswith(tuple(only))]


class Bench:
    """The contestants of one session."""

    def __init__(self, submitted: Submitted, peers: Peers, memory: BufferMemory, roof: Roof) -> None:
        self._submission, self._peers, self._memory, self._roof = (submitted.contestant(), peers, memory, roof)
        # contestant and function: why it is not there
        self.missing: dict[tuple[str, str], str] = {}

    def rows(self, work: Workload) -> Iterator[BenchRow]:
        """Yield a row per contestant that can do the work, timed in turns."""
        try:
            race = self._race(clock.Track(work, self._memory), work)
        except (ValueError, torch.OutOfMemoryError) as error:  # too large for this GPU
            self.missing[SUBMISSION, work.function] = first_line(error)
            return
        if race is None:
            return
        best, dtype = min(timing.seconds for timing in race.timings.values()), work.largest.dtype
        for name, timing in race.timings.items():
            yield row_of(work, name, timing, measure(dtype) if dtype.itemsize == 1 else self._roof)
            if name not in (SUBMISSION, COPYING) and timing.seconds > ENOUGH * best:
                self.missing[name, work.function] = (
                    f"over {ENOUGH:g} times as slow as the best: not run at larger sizes"
                )

    def _race(self, track: clock.Track, work: Workload) -> clock.RaceTimes | None:
        """Time all contestants, without those that fail at the work; None if none is left."""
        while present := self._contestants(work):
            try:
                for contestant in present:
                    track.warm_up(contestant)
                return clock.race_on(track, present, ROUNDS)
            except PeerFailed as error:
                name, why = error.args
                self.missing[name, work.function] = why
            except (ContestantFailed, WorkerDied, Mismatch) as error:
                self.missing[SUBMISSION, work.function] = first_line(error)
        return None

    def _contestants(self, work: Workload) -> list[clock.Contestant]:
        part = operators.part(work.function, "workload")
        begins = getattr(part, "FROM_D", {})  # by peer
        peers = [name for name in part.PEERS[work.function] if work.largest.shape[-1] >= begins.get(name, 0)]
        everyone = [self._submission, *map(self._peers.contestant, peers)]
        return [one for one in everyone if (one.name, work.function) not in self.missing]


def row_of(work: Workload, name: str, timing: clock.Timing, roof: Roof) -> BenchRow:
    """Return what a contestant took for a workload, as figures."""
    spec = work.largest
    nbytes = 2 * spec.nbytes if name == COPYING else work.nbytes
    operations = 0.0 if name == COPYING else work.operations
    return BenchRow(
        work.function,
        str(spec.dtype).removeprefix("torch."),
        spec.shape[-2],
        spec.shape[-1],
        " ".join(words.switched_on(work.options)),
        name,
        round(1e6 * timing.seconds, 2),
        round(1e6 * timing.low, 2),
        round(1e6 * timing.high, 2),
        round(1e6 * timing.host_s, 2),
        operations / timing.seconds / 1e12,
        nbytes / timing.seconds / 1e12,
        roof.least_seconds(nbytes, operations) / timing.seconds,
        (work.operations or work.arithmetic) / work.nbytes,
    )


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:100]


def run(
    console: Console, submitted: Submitted, peers: Peers, memory: BufferMemory, roof: Roof, only: Sequence[str]
) -> Iterator[list[BenchRow]]:
    """Time the whole sweep: a line for each size as soon as it is timed, a table for each function when it is done."""
    bench = Bench(submitted, peers, memory, roof)
    found: list[BenchRow] = []  # of the function that is at it
    works = sweep(only)
    bar = (TextColumn("  timing {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with Progress(*bar, console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task("", total=len(works))
            for i, work in enumerate(works):
                progress.update(task, description=work.function)
                rows = [*bench.rows(work)]
                found += rows
                if rows:
                    console.print(f"  {line(rows)}; {len(works) - i - 1} sizes to go", style="dim", markup=False)
                yield rows
                progress.advance(task)
                if found and (i + 1 == len(works) or works[i + 1].function != work.function):
                    console.print(table(found))
                    found.clear()
    finally:
        if found:  # stopped halfway
            console.print(table(found))
        for (name, function), why in bench.missing.items():
            console.print(f"  {TITLES[name]}, {function}: {why}", style="dim", markup=False)


def line(rows: list[BenchRow]) -> str:
    """Return one size in a line: "rmsnorm_forward 4,096 × 80: this submission 2.10 TB/s 53%, copy 2.90 TB/s 73%"."""
    is_product = any(row.tflops for row in rows)
    unit = "TFLOP/s" if is_product else "TB/s"
    cells = (f"{TITLES[row.contestant]} {_cell(row, is_product).replace(' ', f' {unit} ')}" for row in rows)
    return f"{rows[0].function} {rows[0].size}: {', '.join(cells)}"


def table(rows: list[BenchRow]) -> Table:
    """Return a table: sizes down, contestants across, with the share of the roofline."""
    names = [name for name in TITLES if any(row.contestant == name for row in rows)]
    is_product = any(row.tflops for row in rows)
    unit = "TFLOP/s" if is_product else "TB/s"
    made = Table(title=f"{rows[0].function}: {unit}, % of the roof", box=None, padding=(0, 1, 0, 0), pad_edge=False)
    made.add_column("n × d", no_wrap=True)
    for name in names:
        made.add_column(HEADINGS[name], justify="right", no_wrap=True)
    made.add_column("host\nµs", justify="right", no_wrap=True)
    for size in dict.fromkeys(row.size for row in rows):
        cells = {row.contestant: row for row in rows if row.size == size}
        ours = cells.get(SUBMISSION)
        made.add_row(size, *(_cell(cells.get(name), is_product) for name in names), f"{ours.host:.0f}" if ours else "–")
    return made


def _cell(row: BenchRow | None, is_product: bool) -> str:
    if row is None:
        return "–"
    return f"{row.tflops:.0f} {row.roof:.0%}" if is_product else f"{row.tb_per_s:.2f} {row.roof:.0%}"


def write_csv(path: Path, rows: list[BenchRow]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(BenchRow)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
