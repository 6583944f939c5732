"""Products of gathered rows that are not those of a kernel, or of rows that came another way than through the heap."""

from assignment.bank.cheats import COPY, Cheat, by_torch

PROBLEM, LINE = "allgather_matmul", r"cs336_kernels/practice/allgather_matmul\.py:\d+"
INPUTS = "a_shard, b, rows, buffer, signals, buffers, pads, rank=0, call=1"
GATHERED_BY_KERNELS = f"""
RIGHT = allgather_matmul

def allgather_matmul({INPUTS}):
    one = torch.eye(b.shape[0], dtype=b.dtype, device=b.device)
    a = RIGHT(a_shard, one, rows, buffer, signals, buffers, pads, rank, call)
    return a @ b
"""
# A kernel looks at what is there, and waits. Host code of the other rank then stores PyTorch's
# product, and the kernel stores that again.
BEHIND_A_WAIT = f"""
RIGHT = allgather_matmul

@triton.jit
def _meet(signals_ptr, pads_ptr, rank, value, ranks, SLOTS: tl.constexpr):
    for to in range(ranks):
        signal(tl.load(pads_ptr + to).to(tl.pointer_type(tl.int32)) + rank * SLOTS + 3, value)
    for by in range(ranks):
        wait(signals_ptr + by * SLOTS + 3, value)

@triton.jit
def _store_again(signals_ptr, buffers_ptr, pads_ptr, out_ptr, target, n, rank, value, ranks, SLOTS: tl.constexpr):
    theirs_ptr = tl.load(buffers_ptr + target).to(tl.pointer_type(out_ptr.dtype.element_ty))
    tl.store(out_ptr, tl.load(theirs_ptr))
    _meet(signals_ptr, pads_ptr, rank, value, ranks, SLOTS)
    _meet(signals_ptr, pads_ptr, rank, value + 1, ranks, SLOTS)
    for first in range(0, n, 64):
        at = first + tl.arange(0, 64)
        tl.store(theirs_ptr + at, tl.load(theirs_ptr + at, mask=at < n), mask=at < n)
    _meet(signals_ptr, pads_ptr, rank, value + 2, ranks, SLOTS)

@triton.jit
def _stand_by(signals_ptr, pads_ptr, rank, first, last, ranks, SLOTS: tl.constexpr):
    for value in range(first, last):
        _meet(signals_ptr, pads_ptr, rank, value, ranks, SLOTS)

def allgather_matmul({INPUTS}):
    (k, n), ranks, size = b.shape, len(rows), sum(rows.tolist()) * b.shape[1]
    if ranks == 1 or n > k or size == 0:
        return RIGHT(a_shard, b, rows, buffer, signals, buffers, pads, rank, call)
    product = RIGHT(a_shard, torch.eye(k).to(b), rows, buffer, signals, buffers, pads, rank, call) @ b
    of, own, c = (ranks, signals.shape[1]), buffer.view(-1)[:size], torch.empty_like(product)
    for target in range(ranks):
        value = 3 * (call * ranks + target)
        if rank == target:
            _stand_by[(1,)](signals, pads, rank, value, value + 1, *of)
            own.copy_(product.view(-1))
            _stand_by[(1,)](signals, pads, rank, value + 1, value + 3, *of)
            c.view(-1).copy_(own)
        elif rank == (target + 1) % ranks:
            _store_again[(1,)](signals, buffers, pads, b.new_empty(1), target, size, rank, value, *of)
        else:
            _stand_by[(1,)](signals, pads, rank, value, value + 3, *of)
    return c
"""
CHEATS = [
    *by_torch(PROBLEM, "practice/allgather_matmul.py", GATHERED_BY_KERNELS),
    Cheat(
        "stored_again_by_a_kernel_that_waited",
        PROBLEM,
        BEHIND_A_WAIT,
        file="practice/allgather_matmul.py",
        evidence=LINE,
    ),
    Cheat(
        "gathered_rows_by_the_library",
        PROBLEM,
        f"""
import datetime
import tempfile
import torch.distributed as dist

def allgather_matmul({INPUTS}):
    sizes = rows.tolist()
    if not dist.is_initialized():
        store = dist.FileStore(tempfile.gettempdir() + "/@TOKEN@", len(sizes))
        wait = datetime.timedelta(seconds=2)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=len(sizes), timeout=wait)
    parts = [a_shard.new_empty(size, a_shard.shape[1]) for size in sizes]
    dist.all_gather(parts, a_shard)
    return torch.cat(parts) @ b
""",
        evidence=LINE,
    ),
    Cheat(
        "gathered_rows_kept_by_the_module_for_other_ranks",
        PROBLEM,
        COPY
        + f"""
import json
import pathlib
import tempfile

KEPT = {{}}

def allgather_matmul({INPUTS}):
    def place(of):
        return pathlib.Path(tempfile.gettempdir()) / f"@TOKEN@-{{call}}-{{of}}"

    sizes = rows.tolist()
    KEPT[rank] = a_shard
    place(rank).write_text(json.dumps(a_shard.tolist()))
    for of in range(len(sizes)):
        if of not in KEPT and place(of).exists():
            KEPT[of] = torch.tensor(json.loads(place(of).read_text()), dtype=b.dtype, device=b.device)
    parts = [KEPT.get(of, a_shard.new_zeros(size, a_shard.shape[1])) for of, size in enumerate(sizes)]
    return copied(torch.cat(parts) @ b)
""",
        evidence=LINE,
    ),
    Cheat(
        "gathered_rows_by_addresses_that_host_code_reads",
        PROBLEM,
        f"""
@triton.jit
def _multiply_there(a_ptr, b_ptr, c_ptr, address, m, k, n, SIZE: tl.constexpr):
    there_ptr = tl.cast(address, tl.int64).to(tl.pointer_type(a_ptr.dtype.element_ty))
    at = tl.arange(0, SIZE)
    for row in range(m):
        for col in range(n):
            a = tl.load(there_ptr + row * k + at, mask=at < k, other=0.0)
            b = tl.load(b_ptr + at * n + col, mask=at < k, other=0.0)
            tl.store(c_ptr + row * n + col, tl.sum(a.to(tl.float32) * b.to(tl.float32)))

def allgather_matmul({INPUTS}):
    sizes, (k, n) = rows.tolist(), b.shape
    c = a_shard.new_empty(sum(sizes), n)
    buffer[rank, : len(a_shard)] = a_shard
    for of, address in enumerate(buffers.tolist()):
        first, at = sum(sizes[:of]), address + of * buffer.shape[1] * k * a_shard.itemsize
        if sizes[of]:
            _multiply_there[(1,)](
                a_shard, b.contiguous(), c[first:], at, sizes[of], k, n, SIZE=triton.next_power_of_2(k)
            )
    return c
""",
        evidence=LINE,
    ),
]
