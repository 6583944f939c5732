"""How long a FlashAttention-2 forward takes in the simulator, against Triton's own interpreter.

    python -m assignment.simulator.benchmark

Both run by turns in processes of their own; the medians of three are compared.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import time

SHAPES = {
    "64-row tiles, d = 64": (2, 512, 64, 64),
    "16-row tiles, d = 64": (2, 256, 64, 16),
    "d = 128": (2, 512, 128, 64),
}
DTYPES = ("float32", "bfloat16")


def main() -> None:
    """Print one line per shape and type: both times in milliseconds, and their ratio."""
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
        return
    runs: dict[str, list[dict[str, float]]] = {"interpreter": [], "simulator": []}
    for _ in range(3):
        for engine, times in runs.items():
            times.append(_in_a_process(engine))
    for case in runs["simulator"][0]:
        ours, theirs = (statistics.median(t[case] for t in runs[e]) for e in ("simulator", "interpreter"))
        print(f"{case:36} interpreter {theirs:7.1f} ms   simulator {ours:7.1f} ms   {theirs / ours:4.1f} times as fast")


def _in_a_process(engine: str) -> dict[str, float]:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "assignment.simulator.benchmark", engine]
    times: dict[str, float] = json.loads(subprocess.check_output(command, env=environment, text=True))
    return times


def measure(engine: str) -> dict[str, float]:
    """Milliseconds of the second call of each case."""
    if engine == "simulator":
        from assignment.simulator import install

        install()
    import torch

    from assignment.simulator.benchmark_kernel import flash_forward

    times = {}
    for dtype in DTYPES:
        for name, (batch, n, d, tile) in SHAPES.items():
            q, k, v = (torch.randn(batch, n, d).to(getattr(torch, dtype)) for _ in range(3))
            flash_forward(q[:, :tile].contiguous(), k, v, tile, 1 / math.sqrt(d))
            start = time.perf_counter()
            flash_forward(q, k, v, tile, 1 / math.sqrt(d))
            times[f"{dtype}, {name}"] = (time.perf_counter() - start) * 1e3
    return times


if __name__ == "__main__":
    main()
