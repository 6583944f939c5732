"""Time a FlashAttention-2 forward in the simulator, all checks on, against Triton's interpreter.

    python -m assignment.bank.operators.flash_attention.benchmark [FOLDER]

FOLDER holds the cs336_kernels/ to run: by default the reference's.
Both run in turns in separate processes; the medians of five runs are compared, with their range.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
SHAPES = {"512 tokens, d = 64": (2, 512, 64), "512 tokens, d = 128": (2, 512, 128), "77 tokens, d = 40": (3, 77, 40)}
DTYPES = ("float32", "bfloat16")
ENGINES = ("interpreter", "simulator")
RUNS = 5


def main() -> None:
    """Print both times in milliseconds and their ratio, one line per shape and type."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "assignment" / "reference"
    runs: dict[str, list[dict[str, float]]] = {engine: [] for engine in ENGINES}
    for _ in range(RUNS):
        for engine in ENGINES:
            runs[engine].append(_in_a_process(engine, folder))
    for case in runs["simulator"][0]:
        theirs, ours = (sorted(times[case] for times in runs[engine]) for engine in ENGINES)
        ratio = statistics.median(theirs) / statistics.median(ours)
        print(f"{case:32} interpreter {_spread(theirs)}   simulator {_spread(ours)}   {ratio:4.1f} times as fast")


def _spread(times: list[float]) -> str:
    return f"{statistics.median(times):7.1f} ms ({times[0]:.0f}–{times[-1]:.0f})"


def _in_a_process(engine: str, folder: Path) -> dict[str, float]:
    path = os.pathsep.join([str(folder.resolve()), str(ROOT)])
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": path}
    command = [sys.executable, "-c", f"from {__spec__.name} import measure; measure({engine!r})"]
    times: dict[str, float] = json.loads(subprocess.check_output(command, env=environment, text=True, cwd=folder))
    return times


def measure(engine: str) -> None:
    """Print the milliseconds of the second call of each case, causal, as JSON."""
    if engine == "simulator":
        from assignment.simulator import install

        install()
    import torch

    if engine == "interpreter":  # which knows no GPU: the simulator's, so that tiles are the same
        torch.cuda.get_device_capability = lambda device=None: (9, 0)

    from cs336_kernels import flash_forward_triton

    times = {}
    for dtype in DTYPES:
        for name, shape in SHAPES.items():
            q, k, v = (torch.randn(shape).to(getattr(torch, dtype)) for _ in range(3))
            flash_forward_triton(q[:, :16], k[:, :16], v[:, :16], is_causal=True)
            start = time.perf_counter()
            flash_forward_triton(q, k, v, is_causal=True)
            times[f"{dtype}, {name}"] = (time.perf_counter() - start) * 1e3
    print(json.dumps(times))


if __name__ == "__main__":
    main()
