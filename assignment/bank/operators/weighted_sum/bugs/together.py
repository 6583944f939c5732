"""Planted bugs of the weighted sum that are right where each program runs alone to its end."""

from assignment.bank.operators.edits import Bug, bug

PROBLEM = "weighted_sum"
FILES = ("weighted_sum.py",)
ORDER, RACE = "depends on the order", "nothing orders them"
STORE = "        tl.store(partial_ptrs, partial, mask=in_cols)"
ADDED = (
    "        partial += tl.load(partial_ptrs, mask=in_cols, other=0.0)\n"
    "        tl.store(partial_ptrs, partial, mask=in_cols)\n        tl.debug_barrier()\n"
)
GUARDED = ADDED.replace("        ", "            ")
LOCK = "tl.atomic_cas(state_ptr + first_col // D_TILE_SIZE, 0, 1)"
UNLOCK = "tl.atomic_xchg(state_ptr + first_col // D_TILE_SIZE, 0)"
TOTAL = (
    "            total = tl.zeros((D_TILE_SIZE,), dtype=tl.float32)\n"
    "            for other in range(tl.num_programs(0)):\n                "
    "total += tl.load(partial_ptr + other * stride_pr + cols * stride_pd, mask=in_cols, other=0.0)\n"
    "            tl.store(partial_ptr + tl.num_programs(0) * stride_pr + cols * stride_pd, total, mask=in_cols)"
)


def queue(name: str, take: str) -> Bug:
    """Return a bug of the forward pass, in which programs take tiles from a queue in this way."""
    zero = "torch.zeros(1, dtype=torch.int32, device=x.device)"
    return bug(
        f"forward: {name}",
        "test_forward_values",
        f"            x_rows, weight, y,\n →             x_rows, weight, y, {zero},\n",
        "    x_ptr, w_ptr, y_ptr,\n →     x_ptr, w_ptr, y_ptr, queue_ptr,\n",
        f"    rows = tl.program_id(0).to →     {take}\n    rows = tile.to",
        named=ORDER,
    )


def backward(name: str, end: str, rows: str = "1", row: str = "0 * tile", named: str = ORDER) -> Bug:
    """Return a bug of the backward pass, whose kernel gets int32 zeros, and ends a tile of columns so."""
    state = "    state = torch.zeros(triton.cdiv(d, D_TILE_SIZE) + 1, dtype=torch.int32, device=x.device)\n"
    result = "[-1]" if rows != "1" else "[0]"
    return bug(
        f"backward: {name}",
        "test_backward_values",
        f"torch.empty((n_tiles, d), dtype → torch.zeros(({rows}, d), dtype",
        f"    if n_rows > 0:\n        _backward → {state}    if n_rows > 0:\n        _backward",
        "weight, grad_x, partial_grad_w, → weight, grad_x, partial_grad_w, state,",
        "grad_x_ptr, partial_ptr, → grad_x_ptr, partial_ptr, state_ptr,",
        f"partial_ptr + tile * stride_pr → partial_ptr + {row} * stride_pr",
        f"partial_grad_w.sum(dim=0) → partial_grad_w{result}",
        f"{STORE} → {end}",
        named=named,
    )


BUGS = (
    queue("tiles taken by a load and an atomic", "tile = tl.load(queue_ptr)\n    tl.atomic_add(queue_ptr, 1)"),
    queue("tiles taken by an atomic of a thread block", 'tile = tl.atomic_add(queue_ptr, 1, scope="cta")'),
    backward(
        "added by a load and an exchange",
        "        before = tl.load(partial_ptrs, mask=in_cols, other=0.0)\n"
        "        tl.atomic_xchg(partial_ptrs, before + partial, mask=in_cols)",
    ),
    backward(
        "added by atomics of a thread block",
        '        tl.atomic_add(partial_ptrs, partial, mask=in_cols, scope="cta")',
    ),
    backward("a lock, and nobody asks who has it", f"        {LOCK}\n{ADDED}        {UNLOCK}"),
    backward(
        "a lock that is tried once",
        f"        if {LOCK} == 0:\n{GUARDED}            {UNLOCK}",
    ),
    backward(
        "a lock given back before what it guards is stored",
        f"        while {LOCK} == 1:\n            pass\n"
        "        partial += tl.load(partial_ptrs, mask=in_cols, other=0.0)\n"
        f"        {UNLOCK}\n        tl.store(partial_ptrs, partial, mask=in_cols)",
        named=RACE,
    ),
    backward(
        "a lock that is never given back", f"        while {LOCK} == 1:\n            pass\n{ADDED}", named="deadlock"
    ),
    backward(
        "a condition that always holds",
        f"        if tl.atomic_add(state_ptr, 1) >= 0:\n{GUARDED}            tl.atomic_add(state_ptr, 1)",
    ),
    backward(
        "a mask that always holds",
        "        is_mine = in_cols & (tl.atomic_add(state_ptr, 1) >= 0)\n"
        "        partial += tl.load(partial_ptrs, mask=is_mine, other=0.0)\n"
        "        tl.store(partial_ptrs, partial, mask=is_mine)",
        named=RACE,
    ),
    backward(
        "the last program by a relaxed counter loads what all have added",
        '        tl.atomic_add(partial_ptrs, partial, mask=in_cols, sem="relaxed")\n        tl.debug_barrier()\n'
        "        count_ptr = state_ptr + first_col // D_TILE_SIZE\n"
        '        if tl.atomic_add(count_ptr, 1, sem="relaxed") == tl.num_programs(0) - 1:\n'
        "            total = tl.load(partial_ptrs, mask=in_cols, other=0.0)\n"
        "            tl.store(partial_ptrs + stride_pr, total, mask=in_cols)",
        rows="2",
    ),
    backward(
        "the last program by a relaxed counter loads what all have stored",
        f"{STORE}\n        tl.debug_barrier()\n        count_ptr = state_ptr + first_col // D_TILE_SIZE\n"
        f'        if tl.atomic_add(count_ptr, 1, sem="relaxed") == tl.num_programs(0) - 1:\n{TOTAL}',
        rows="n_tiles + 1",
        row="tile",
        named=RACE,
    ),
    backward(
        "the last program counted before its own sums are stored",
        "        count_ptr = state_ptr + first_col // D_TILE_SIZE\n"
        f"        count = tl.atomic_add(count_ptr, 1)\n{STORE}\n        if count == tl.num_programs(0) - 1:\n{TOTAL}",
        rows="n_tiles + 1",
        row="tile",
        named=RACE,
    ),
    backward(
        "all wait for one program too many",
        f"{STORE}\n        tl.debug_barrier()\n        count_ptr = state_ptr + first_col // D_TILE_SIZE\n"
        "        tl.atomic_add(count_ptr, 1)\n"
        "        while tl.atomic_add(count_ptr, 0) <= tl.num_programs(0):\n            pass\n"
        f"        if tile == 0:\n{TOTAL}",
        rows="n_tiles + 1",
        row="tile",
        named="deadlock",
    ),
)
