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
CHEATS = [
    *by_torch(PROBLEM, "practice/allgather_matmul.py", GATHERED_BY_KERNELS),
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
