"""The kernels on which the simulator's page stands beside triton-viz: four right ones, and a fault of each kind.

python -m assignment.simulator --html page.html assignment/attacks/beside_triton_viz.py [NAME]
python assignment/attacks/beside_triton_viz.py   where triton-viz is installed: what its clients say of each
"""

import os
import subprocess
import sys

if __name__ == "__main__" and "assignment.simulator" not in sys.modules:
    os.environ["TRITON_INTERPRET"] = "1"
import torch
import triton
import triton.language as tl

CLIENTS = ("tracer", "sanitizer", "profiler")


@triton.jit
def add_kernel(x_ptr, y_ptr, n, IS_MASKED: tl.constexpr, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0) if IS_MASKED else tl.load(x_ptr + at)
    tl.store(y_ptr + at, x + 1, mask=at < n)


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, COLS: tl.constexpr):
    cols = tl.arange(0, COLS)
    x = tl.load(x_ptr + tl.program_id(0) * n_cols + cols, mask=cols < n_cols, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + tl.program_id(0) * n_cols + cols, e / tl.sum(e, axis=0), mask=cols < n_cols)


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, m, n, k, TILE: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    cols = tl.program_id(1) * TILE + tl.arange(0, TILE)
    acc = tl.zeros((TILE, TILE), tl.float32)
    for start in range(0, k, TILE):
        ks = start + tl.arange(0, TILE)
        a = tl.load(a_ptr + rows[:, None] * k + ks[None, :], mask=(rows < m)[:, None] & (ks < k)[None, :], other=0.0)
        b = tl.load(b_ptr + ks[:, None] * n + cols[None, :], mask=(ks < k)[:, None] & (cols < n)[None, :], other=0.0)
        acc += tl.dot(a, b)
    tl.store(c_ptr + rows[:, None] * n + cols[None, :], acc, mask=(rows < m)[:, None] & (cols < n)[None, :])


@triton.jit
def flash_kernel(q_ptr, k_ptr, v_ptr, o_ptr, n, scale, IS_TURNED: tl.constexpr, TILE: tl.constexpr, D: tl.constexpr):
    queries, dims = tl.program_id(0) * TILE + tl.arange(0, TILE), tl.arange(0, D)
    q = tl.load(q_ptr + queries[:, None] * D + dims[None, :], mask=(queries < n)[:, None], other=0.0)
    top, total = tl.full((TILE,), float("-inf"), tl.float32), tl.zeros((TILE,), tl.float32)
    acc = tl.zeros((TILE, D), tl.float32)
    for start in range(0, n, TILE):
        keys = start + tl.arange(0, TILE)
        if IS_TURNED:
            k = tl.trans(tl.load(k_ptr + keys[:, None] * D + dims[None, :], mask=(keys < n)[:, None], other=0.0))
        else:
            k = tl.load(k_ptr + keys[None, :] * D + dims[:, None], mask=(keys < n)[None, :], other=0.0)
        v = tl.load(v_ptr + keys[:, None] * D + dims[None, :], mask=(keys < n)[:, None], other=0.0)
        s = tl.where((keys < n)[None, :], tl.dot(q, k) * scale, float("-inf"))
        new = tl.maximum(top, tl.max(s, axis=1))
        p = tl.exp(s - new[:, None])
        total = total * tl.exp(top - new) + tl.sum(p, axis=1)
        acc = acc * tl.exp(top - new)[:, None] + tl.dot(p, v)
        top = new
    tl.store(o_ptr + queries[:, None] * D + dims[None, :], acc / total[:, None], mask=(queries < n)[:, None])


@triton.jit
def race_kernel(x_ptr, y_ptr):
    tl.store(y_ptr + tl.arange(0, 4), tl.load(x_ptr + tl.program_id(0)) + tl.arange(0, 4))


@triton.jit
def next_kernel(x_ptr, y_ptr):
    tl.store(y_ptr + tl.arange(0, 4), tl.load(x_ptr + tl.arange(0, 4)) + 1)


def flash(wrap, is_turned):
    q, k, v = torch.randn(3, 50, 16)
    wrap(flash_kernel)[(4,)](q, k, v, torch.empty(50, 16), 50, 0.25, IS_TURNED=is_turned, TILE=16, D=16)


def matmul(wrap):
    a, b = torch.randn(40, 50), torch.randn(50, 35)
    wrap(matmul_kernel)[(3, 3)](a, b, torch.empty(40, 35), 40, 35, 50, TILE=16)


CASES = {
    "vector add": lambda wrap: wrap(add_kernel)[(4,)](torch.ones(200), torch.empty(200), 200, IS_MASKED=True, TILE=64),
    "soft maximum": lambda wrap: wrap(softmax_kernel)[(6,)](torch.randn(6, 50), torch.empty(6, 50), 50, COLS=64),
    "matmul": matmul,
    "flash": lambda wrap: flash(wrap, False),
    "flash, tl.trans": lambda wrap: flash(wrap, True),
    "out of bounds": lambda wrap: wrap(add_kernel)[(4,)](
        torch.ones(200), torch.empty(200), 200, IS_MASKED=False, TILE=64
    ),
    "race": lambda wrap: wrap(race_kernel)[(3,)](torch.arange(3.0), torch.empty(4)),
    "unwritten": lambda wrap: wrap(next_kernel)[(1,)](torch.empty(4), torch.empty(4)),
    "NaN": lambda wrap: wrap(softmax_kernel)[(1,)](torch.full((4,), float("-inf")), torch.empty(4), 4, COLS=4),
}


def beside() -> None:
    """Print, for each case and client of triton-viz, the last line that it says."""
    for name in CASES:
        for client in CLIENTS:
            done = subprocess.run([sys.executable, __file__, name, client], capture_output=True, text=True)
            said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
            print(f"{name:16} {client:10} {done.returncode} {said[-1] if said else ''}")


def under(name: str, client: str) -> None:
    """Run a case under a client of triton-viz, and print what it has recorded."""
    import triton_viz
    from triton_viz.core.trace import launches

    CASES[name](lambda kernel: triton_viz.trace(client=client)(kernel))
    records = [type(record).__name__ for record in launches[-1].records]
    print({kind: records.count(kind) for kind in dict.fromkeys(records)})


if __name__ == "__main__":
    match sys.argv[1:]:
        case [name, client]:
            under(name, client)
        case [name]:
            CASES[name](lambda kernel: kernel)
        case _ if "assignment.simulator" in sys.modules:
            for case in CASES.values():
                case(lambda kernel: kernel)
        case _:
            beside()
