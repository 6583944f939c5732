"""What bounds each kernel, by the counters of a GPU; needs one, and Nsight Compute (`ncu`). Prints a row an entry.

With what an entry is of, its name, a head dimension or width, and a length, runs that entry once: what `ncu` is given.
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
ELEMENTS = 1 << 28  # of what rows are normalized of
ENTRIES = (  # what is run, its name, d and n
    *(
        ("attention", name, d, 4096)
        for d in (64, 128)
        for name in ("forward", "forward Gluon", "backward", "backward Gluon")
    ),
    *(("rows", "RMSNorm backward", d, ELEMENTS // d) for d in (4096, 16384, 32768)),
    *(("rows", "RMSNorm backward Gluon", d, ELEMENTS // d) for d in (16384, 32768)),
    *(
        ("rows", name, 16384, ELEMENTS // 16384)
        for name in ("LayerNorm forward", "LayerNorm backward Gluon", "bias, GELU")
    ),
    ("rows", "dropout", 4096, ELEMENTS // 4096),
    *(("products", name, 8192, 8192) for name in ("product", "linear, GELU", "product of scaled blocks")),
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


def run(what: str, name: str, d: int, n: int) -> None:
    """Run an entry twice to compile it, then once for the profiler, in bfloat16, not causal."""
    work = {"attention": of_attention, "rows": of_rows, "products": of_products}[what](d, n)[name]
    work()
    work()
    torch.cuda.profiler.start()
    work()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16)


def of_attention(d: int, n: int) -> dict[str, Callable[[], object]]:
    import cs336_kernels as reference
    from assignment.bank.operators.flash_attention.peers import hopper, hopper_backward

    q, k, v, grad_o = (drawn(TOKENS // n, WIDTH // d, n, d) for _ in range(4))
    o, lse = reference.flash_forward_triton(q, k, v)
    return {
        "forward": lambda: reference.flash_forward_triton(q, k, v),
        "forward Gluon": lambda: hopper.flash_forward_triton(q, k, v),
        "backward": lambda: reference.flash_backward_triton(grad_o, q, k, v, o, lse),
        "backward Gluon": lambda: hopper_backward.flash_backward_triton(grad_o, q, k, v, o, lse),
    }


def of_rows(d: int, n_rows: int) -> dict[str, Callable[[], object]]:
    import cs336_kernels as reference
    from assignment.bank.operators.rmsnorm.peers import hopper
    from cs336_kernels.practice import bias_gelu, dropout_add_layernorm, layernorm

    x, grad_y, (weight, bias) = drawn(n_rows, d), drawn(n_rows, d), drawn(2, d)
    rstd = x.float().square().mean(-1).rsqrt()
    _, mean, of_layer = layernorm.layernorm_forward(x, weight, bias)
    return {
        "RMSNorm backward": lambda: reference.rmsnorm_backward(grad_y, x, weight, rstd),
        "RMSNorm backward Gluon": lambda: hopper.rmsnorm_backward(grad_y, x, weight, rstd),
        "LayerNorm forward": lambda: layernorm.layernorm_forward(x, weight, bias),
        "LayerNorm backward Gluon": lambda: hopper.of_rows(grad_y, x, weight, mean, of_layer, 2, 4),
        "bias, GELU": lambda: bias_gelu.bias_gelu_forward(x, bias),
        "dropout": lambda: dropout_add_layernorm.dropout_add_layernorm_forward(x, grad_y, weight, bias, p=0.1, seed=1),
    }


def of_products(k: int, n: int) -> dict[str, Callable[[], object]]:
    from cs336_kernels.practice import linear_gelu, matmul, matmul_block_scaled

    a, b, bias = drawn(n, k), drawn(n, k), drawn(n)
    quantized = matmul_block_scaled.quantize_block_scaled
    scaled = *quantized(a), *quantized(b, (128, 128))
    return {
        "product": lambda: matmul.matmul(a, b),
        "linear, GELU": lambda: linear_gelu.linear_gelu(a, b, bias),
        "product of scaled blocks": lambda: matmul_block_scaled.matmul_block_scaled(*scaled),
    }


def counted(*entry: str) -> list[dict[str, str]]:
    """Return the counters of each kernel of an entry that takes a tenth of its time or more."""
    sections = [word for section in SECTIONS for word in ("--section", section)]
    command = ["ncu", "--clock-control", "none", "--profile-from-start", "off", "--page", "raw", "--csv", *sections]
    done = subprocess.run([*command, sys.executable, __file__, *entry], cwd=ROOT, capture_output=True, text=True)
    if done.returncode or '"ID"' not in done.stdout:
        raise SystemExit(f"{entry[1]}: ncu gave no counters\n{done.stdout}{done.stderr}")
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
    for what, name, d, n in ENTRIES:
        for row in counted(what, name, str(d), str(n)):
            cells = [shown(number(row, counter) * factor) for counter, factor in COLUMNS.values()]
            print(f"| {name} | {d} | {n:,} | {row['Kernel Name']} | {' | '.join(cells)} | {stalls(row)} |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
