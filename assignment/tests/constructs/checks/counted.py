"""Costs against hand counts on kernels small enough to count: run by test_simulator.py."""

# mypy: disable-error-code="attr-defined"

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from assignment.simulator import calls
from assignment.simulator.costs import HostTraffic, summary
from assignment.simulator.trace import Traffic


def counted(launch, *expected: dict) -> None:
    """The launch of `launch()` moved these bytes, tensor by tensor; whatever the order of its programs."""
    for seed in range(3):
        with calls.Call(seed=seed, is_traced=True) as seen:
            launch()
        (cost,) = seen.launches
        for traffic, wanted in zip(cost.tensors, expected, strict=True):
            got = {
                "loaded": traffic.loaded,
                "stored": traffic.stored,
                "updated": traffic.updated,
                "loaded_once": distinct(traffic, "loaded"),
                "stored_once": distinct(traffic, "stored"),
            }
            assert got == {name: wanted.get(name, 0) for name in got}, (traffic.name, got, wanted)


def distinct(traffic: Traffic, action: str) -> int:
    """Bytes touched at least once."""
    return int((traffic.counts[action] > 0).sum()) * traffic.itemsize if action in traffic.counts else 0


def read(nbytes: int, once: int | None = None) -> dict[str, int]:
    return {"loaded": nbytes, "loaded_once": nbytes if once is None else once}


def written(nbytes: int, once: int | None = None) -> dict[str, int]:
    return {"stored": nbytes, "stored_once": nbytes if once is None else once}


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, stride, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    x = tl.load(x_ptr + at * stride, mask=at < n, other=0.0)
    tl.store(y_ptr + at, x, mask=at < n)


def check_copy():
    """100 elements in two programs of 64: the 28 lanes beyond the end count nothing."""
    counted(lambda: copy_kernel[(2,)](torch.ones(100), torch.empty(100), 100, 1, SIZE=64), read(400), written(400))


def check_16_bit_and_strides():
    """Every third of 60 bfloat16 elements: 20 of 2 bytes, the gaps cost nothing here."""
    x, y = torch.ones(60, dtype=torch.bfloat16), torch.empty(20, dtype=torch.bfloat16)
    counted(lambda: copy_kernel[(1,)](x, y, 20, 3, SIZE=32), read(40), written(40))


def check_broadcast_input():
    """An expanded tensor is one element, asked for 48 times."""
    x = torch.ones(1).expand(48)
    counted(lambda: copy_kernel[(3,)](x, torch.empty(48), 48, 0, SIZE=16), read(192, once=4), written(192))


@triton.jit
def gather_kernel(x_ptr, index_ptr, y_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(y_ptr + at, tl.load(x_ptr + tl.load(index_ptr + at)))


def check_gather():
    """64 lanes that ask for 16 elements four times: 256 bytes requested, 64 distinct."""
    index = torch.arange(64, dtype=torch.int32) // 4
    launch = lambda: gather_kernel[(1,)](torch.ones(16), index, torch.empty(64), SIZE=64)  # noqa: E731
    counted(launch, read(256, once=64), read(256), written(256))


@triton.jit
def row_sum_kernel(x_ptr, w_ptr, y_ptr, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, COLS)
    w = tl.load(w_ptr + cols, mask=cols < n_cols, other=0.0)
    mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    x = tl.load(x_ptr + rows[:, None] * n_cols + cols[None, :], mask=mask, other=0.0)
    tl.store(y_ptr + rows, tl.sum(x * w[None, :], 1), mask=rows < n_rows)


def check_weighted_sum():
    """10 rows of 7 in three programs of 4: x once, the weight three times."""
    x, w, y = torch.ones(10, 7), torch.ones(7), torch.empty(10)
    launch = lambda: row_sum_kernel[(3,)](x, w, y, 10, 7, ROWS=4, COLS=8)  # noqa: E731
    counted(launch, read(280), read(84, once=28), written(40))


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, n, k, TILE: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    cols = tl.program_id(1) * TILE + tl.arange(0, TILE)
    c = tl.zeros((TILE, TILE), tl.float32)
    for start in range(0, k, TILE):
        inner = start + tl.arange(0, TILE)
        a = tl.load(a_ptr + rows[:, None] * k + inner[None, :])
        b = tl.load(b_ptr + inner[:, None] * n + cols[None, :])
        c += tl.dot(a, b)
    tl.store(c_ptr + rows[:, None] * n + cols[None, :], c)


def check_matmul():
    """(32, 48) times (48, 64) in tiles of 16: a is read 64/16 times, b 32/16 times; 2·32·64·48 operations."""
    for dtype, width, kind in ((torch.float32, 4, "tf32"), (torch.bfloat16, 2, "bf16"), (torch.float16, 2, "fp16")):
        a, b, c = torch.ones(32, 48).to(dtype), torch.ones(48, 64).to(dtype), torch.empty(32, 64)
        launch = lambda a=a, b=b, c=c: matmul_kernel[(2, 4)](a, b, c, 64, 48, TILE=16)  # noqa: E731
        of_a, of_b = 32 * 48 * width, 48 * 64 * width
        counted(launch, read(4 * of_a, once=of_a), read(2 * of_b, once=of_b), written(32 * 64 * 4))
        with calls.Call(is_traced=True) as seen:
            launch()
        assert dict(seen.launches[0].flops) == {kind: 2 * 32 * 64 * 48}
        assert seen.launches[0].programs == 8
        assert [t.tile_rows for t in seen.launches[0].tensors] == [16, 16, 0]


@triton.jit
def scaled_product_kernel(a_ptr, b_ptr, s_ptr, c_ptr):
    i, k = tl.arange(0, 32), tl.arange(0, 64)
    a = tl.load(a_ptr + i[:, None] * 64 + k[None, :])
    b = tl.load(b_ptr + i[:, None] * 16 + tl.arange(0, 16)[None, :])
    s = tl.load(s_ptr + i[:, None] * 2 + tl.arange(0, 2)[None, :])
    c = tl.dot_scaled(a, s, "e4m3", b, None, "e2m1")
    tl.store(c_ptr + i[:, None] * 16 + tl.arange(0, 16)[None, :], c)


def check_scaled_product():
    """(32, 64) times (64, 16), two numbers to a byte on the right: 2·32·64·16 operations, and the bytes as they are."""
    a, b = torch.ones(32, 64).to(torch.float8_e4m3fn), torch.zeros(32, 16, dtype=torch.uint8)
    s, c = torch.zeros(32, 2, dtype=torch.uint8), torch.empty(32, 16)
    launch = lambda: scaled_product_kernel[(1,)](a, b, s, c)  # noqa: E731
    counted(launch, read(32 * 64), read(32 * 16), read(32 * 2), written(32 * 16 * 4))
    with calls.Call(is_traced=True) as seen:
        launch()
    assert dict(seen.launches[0].flops) == {"e4m3 × e2m1": 2 * 32 * 64 * 16}


@triton.jit
def batches_kernel(x_ptr, y_ptr, n_batches, n, d, BATCHES: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr):
    batches = tl.program_id(0) * BATCHES + tl.arange(0, BATCHES)[:, None, None]
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)[None, :, None]
    cols = tl.arange(0, COLS)[None, None, :]
    offsets = (batches * n + rows) * d + cols
    mask = (batches < n_batches) & (rows < n) & (cols < d)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


def check_tile_of_batches():
    """Four rows of two batches each are a tile of four rows, not of eight; a program past the end has none."""
    x = torch.ones(3, 10, 5)
    for batches, rows, tile_rows in ((2, 4, 4), (1, 8, 8), (4, 16, 10)):
        with calls.Call([x], is_traced=True) as seen:
            flat, y = x.view(30, 5), torch.empty_like(x)
            batches_kernel[(3, 4)](flat, y, 3, 10, 5, BATCHES=batches, ROWS=rows, COLS=8)
        assert [t.tile_rows for t in seen.launches[0].tensors] == [tile_rows, 0]


@triton.jit
def tail_kernel(x_ptr, y_ptr, n, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(x_ptr + at[:, None] * SIZE + at[None, :], mask=(at < n)[:, None])
    tl.store(y_ptr + at[:, None] * SIZE + at[None, :], tl.dot(x, x))


def check_trials_cost_nothing():
    """A program that is run again, for what its masked-out lanes do, is counted once."""
    x, y = torch.ones(16, 16), torch.empty(16, 16)
    with calls.Call(is_traced=True) as seen:
        tail_kernel[(1,)](x, y, 12, SIZE=16)
    assert seen.warnings
    assert dict(seen.launches[0].flops) == {"tf32": 2 * 16**3}
    counted(lambda: tail_kernel[(1,)](x, y, 12, SIZE=16), read(12 * 64), written(16 * 64))


@triton.jit
def count_kernel(counter_ptr, y_ptr):
    tl.atomic_add(counter_ptr, 1)
    tl.atomic_add(y_ptr + tl.arange(0, 4), 1.0, mask=tl.arange(0, 4) < 3)


def check_atomics():
    """8 programs update one int32 and three floats each: 32 and 96 bytes."""
    counter, y = torch.zeros(1, dtype=torch.int32), torch.zeros(4)
    counted(lambda: count_kernel[(8,)](counter, y), {"updated": 32}, {"updated": 96})


@triton.jit
def causal_kernel(q_ptr, k_ptr, o_ptr, n, TILE: tl.constexpr, D: tl.constexpr):
    first, cols = tl.program_id(0) * TILE, tl.arange(0, D)
    rows = first + tl.arange(0, TILE)
    q = tl.load(q_ptr + rows[:, None] * D + cols[None, :], mask=(rows < n)[:, None], other=0.0)
    o = tl.zeros((TILE, D), tl.float32)
    for start in range(0, tl.minimum(n, first + TILE), TILE):
        keys = start + tl.arange(0, TILE)
        k = tl.load(k_ptr + keys[:, None] * D + cols[None, :], mask=(keys < n)[:, None], other=0.0)
        o += tl.dot(tl.dot(q, tl.trans(k)), k)
    tl.store(o_ptr + rows[:, None] * D + cols[None, :], o, mask=(rows < n)[:, None])


def check_causal_attention():
    """40 tokens in tiles of 16: 16, 32 and 40 keys are read; the padding of the last tiles costs operations only."""
    q, k, o = torch.ones(40, 16), torch.ones(40, 16), torch.empty(40, 16)
    row = 16 * 4
    launch = lambda: causal_kernel[(3,)](q, k, o, 40, TILE=16, D=16)  # noqa: E731
    counted(launch, read(40 * row), read((16 + 32 + 40) * row, once=40 * row), written(40 * row))
    with calls.Call(is_traced=True) as seen:
        launch()
    assert dict(seen.launches[0].flops) == {"tf32": (1 + 2 + 3) * 2 * 2 * 16 * 16 * 16}


@triton.jit
def descriptor_kernel(x_desc, y_desc, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS
    y_desc.store([row, 0], x_desc.load([row, 0]) * 2.0)


def check_descriptors():
    """10 rows of 8 through blocks of 4 rows of 16: what the descriptor cuts off is not moved."""
    x, y = torch.ones(10, 8), torch.empty(10, 8)
    both = [TensorDescriptor(t, (10, 8), (8, 1), [4, 16]) for t in (x, y)]
    counted(lambda: descriptor_kernel[(3,)](*both, ROWS=4), read(320), written(320))


@triton.jit
def overlap_kernel(x_ptr, y_ptr, n, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    left = tl.load(x_ptr + at - 1, mask=(at > 0) & (at < n), other=0.0)
    right = tl.load(x_ptr + at + 1, mask=at < n - 1, other=0.0)
    tl.store(y_ptr + at, left + right, mask=at < n)
    tl.store(y_ptr + at, left, mask=at == 0)


def check_stencil():
    """Both neighbours of 50 elements: 49 loads each way; element 0 is stored twice."""
    x, y = torch.ones(50), torch.empty(50)
    counted(lambda: overlap_kernel[(4,)](x, y, 50, SIZE=16), read(2 * 49 * 4, once=200), written(204, once=200))


def summed_up(function, *inputs: torch.Tensor) -> dict:
    with calls.Call(inputs, is_traced=True) as call, HostTraffic() as host:
        result = function(*inputs)
    return summary(call.launches, host, inputs, [result])


def check_what_pytorch_moves():
    """A clone reads its source once more; views, torch.empty and constant fills cost nothing."""

    def plain(x):
        y = torch.empty_like(x).view(-1)
        copy_kernel[(2,)](x.view(-1).contiguous(), y, 100, 1, SIZE=64)
        return y.view(10, 10)

    def wasteful(x):
        y = torch.zeros_like(x)
        copy_kernel[(2,)](x.clone(), y, 100, 1, SIZE=64)
        return y + 0

    def by_pytorch(x):
        return (x.double().exp() @ x.double()).float()

    x = torch.ones(10, 10)
    costs = summed_up(plain, x)
    assert (costs["read"], costs["written"], costs["beside"]) == ([400], [400], 0)
    costs = summed_up(wasteful, x)
    assert (costs["read"], costs["written"], costs["beside"]) == ([800], [800], 400 + 400)
    for copied in (lambda x: torch.cat(x.chunk(5)), lambda x: x.repeat(3, 1)[:10], lambda x: x.half().float()):
        copy = lambda x, copied=copied: plain(copied(x))  # noqa: E731
        assert summed_up(copy, x)["read"][0] >= 800

    def shared(x):
        workspace = torch.empty(110)
        copy_kernel[(2,)](x.view(-1), workspace[10:], 100, 1, SIZE=64)
        copy_kernel[(1,)](x.view(-1), workspace[:10], 10, 1, SIZE=16)
        return workspace[:10]

    costs = summed_up(shared, x)
    assert (costs["written"], costs["beside"]) == ([40], 400)

    def in_two_launches(x):
        square, sums = torch.empty(48, 48), torch.empty(48)
        matmul_kernel[(3, 3)](x, x, square, 48, 48, TILE=16)
        row_sum_kernel[(3,)](square, torch.ones(48), sums, 48, 48, ROWS=16, COLS=16)
        return sums

    costs = summed_up(in_two_launches, torch.ones(48, 48))
    assert (costs["written"], costs["beside"]) == ([48 * 4], (48 * 48 + 48 * 16 + 3 * 16) * 4)
    costs = summed_up(by_pytorch, x)  # x 2 × 400; x.double() 2 × 800, its exp 800, their product 800
    assert costs["read"] == [800 + 1600 + 800 + 800]
    with HostTraffic() as host:
        (x[:, :, None] * x[:, None, :]).sum()
    assert host.largest == 1000
    with HostTraffic() as host:
        assert torch.equal(x, x.T.view(10, 10).clone())
    assert (sum(n for _, n in host.read), sum(n for _, n in host.written)) == (400 + 800, 400)
