"""What bounds each kernel, by the counters of a GPU; needs one, and Nsight Compute (`ncu`). Prints a row an entry.

With the name of an entry, a head dimension or width, and a length, runs that entry once: what `ncu` is given.
"""

import csv
import io
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT / "assignment/reference"), str(ROOT)]
TOKENS, WIDTH = 16384, 2048  # of attention: batches × length, heads × d
ENTRIES = (
    *((name, d, 4096) for d in (64, 128) for name in ("forward", "forward Gluon", "backward", "backward Gluon")),
    *(("RMSNorm backward", d, (1 << 28) // d) for d in (4096, 32768)),
)
PERCENT = "avg.pct_of_peak_sustained_elapsed"
COLUMNS = {  # heading → counter
    "µs": ("gpu__time_duration.sum", 1e-3),
    "GHz": ("gpc__cycles_elapsed.avg.per_second", 1e-9),
    "tensor cores": (f"sm__pipe_tensor_cycles_active.{PERCENT}", 1),
    "exp2": (f"sm__inst_executed_pipe_xu.{PERCENT}", 1),
    "issue": (f"sm__issue_active.{PERCENT}", 1),
    "shared memory": (f"l1tex__data_pipe_lsu_wavefronts.{PERCENT}", 1),
    "L2": (f"lts__throughput.{PERCENT}", 1),
    "DRAM": (f"gpu__dram_throughput.{PERCENT}", 1),
}
STALL = "smsp__average_warps_issue_stalled_"
SECTIONS = ("SpeedOfLight", "ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis", "WarpStateStats")


def run(name: str, d: int, n: int) -> None:
    """Run an entry twice to compile it, then once for the profiler, in bfloat16, not causal."""
    work = rmsnorm_backward(d, n) if name.startswith("RMSNorm") else attention(name, d, n)
    work()
    work()
    torch.cuda.profiler.start()
    work()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def attention(name: str, d: int, n: int) -> Callable[[], object]:
    import cs336_kernels as reference
    from assignment.bank.operators.flash_attention.peers import hopper, hopper_backward

    shape = TOKENS // n, WIDTH // d, n, d
    q, k, v, grad_o = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    o, lse = reference.flash_forward_triton(q, k, v)
    return {
        "forward": lambda: reference.flash_forward_triton(q, k, v),
        "forward Gluon": lambda: hopper.flash_forward_triton(q, k, v),
        "backward": lambda: reference.flash_backward_triton(grad_o, q, k, v, o, lse),
        "backward Gluon": lambda: hopper_backward.flash_backward_triton(grad_o, q, k, v, o, lse),
    }[name]


def rmsnorm_backward(d: int, n_rows: int) -> Callable[[], object]:
    import cs336_kernels as reference

    x, grad_y = (torch.randn(n_rows, d, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    weight = torch.randn(d, device="cuda", dtype=torch.bfloat16)
    rstd = reference.rmsnorm_forward(x, weight)[1]
    return lambda: reference.rmsnorm_backward(grad_y, x, weight, rstd)


def counted(name: str, d: int, n: int) -> list[dict[str, str]]:
    """Return the counters of each kernel of an entry that takes a tenth of its time or more."""
    sections = [word for section in SECTIONS for word in ("--section", section)]
    command = ["ncu", "--clock-control", "none", "--profile-from-start", "off", "--page", "raw", "--csv", *sections]
    done = subprocess.run(
        [*command, sys.executable, __file__, name, str(d), str(n)], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode or '"ID"' not in done.stdout:
        raise SystemExit(f"{name}: ncu gave no counters\n{done.stdout}{done.stderr}")
    table = csv.DictReader(io.StringIO(done.stdout[done.stdout.index('"ID"') :]))
    kernels = [row for row in table if row["ID"]]  # the first row are units
    whole = sum(number(row, "gpu__time_duration.sum") for row in kernels)
    return [row for row in kernels if number(row, "gpu__time_duration.sum") > whole / 10]


def number(row: dict[str, str], counter: str) -> float:
    return float(row[counter].replace(",", ""))


def shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def stalls(row: dict[str, str]) -> str:
    """Return the three reasons for which warps wait most, with how many wait for each that issues an instruction."""
    found = {key.removeprefix(STALL).split("_per_")[0]: number(row, key) for key in row if key.startswith(STALL)}
    most = sorted(found.items(), key=lambda item: -item[1])
    return ", ".join([f"{reason} {n:.1f}" for reason, n in most if reason != "selected"][:3])


def main() -> None:
    if not torch.cuda.is_available() or not shutil.which("ncu"):
        raise SystemExit(
            "counting needs a GPU and Nsight Compute: no CUDA device is visible here, or no ncu on the PATH"
        )
    print(f"{torch.cuda.get_device_name()}; percent of the most that each could do")
    print("| entry | d | n | kernel |", *(f" {heading} |" for heading in COLUMNS), " warps wait for |", sep="")
    print("|---|---|---|---|", "---|" * (len(COLUMNS) + 1), sep="")
    for name, d, n in ENTRIES:
        for row in counted(name, d, n):
            cells = [shown(number(row, counter) * factor) for counter, factor in COLUMNS.values()]
            print(f"| {name} | {d} | {n:,} | {row['Kernel Name']} | {' | '.join(cells)} | {stalls(row)} |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
