"""The backward pass of wide rows for Hopper alone, in Gluon: a row waits in shared memory until its mean is known.

Plain Triton holds a row in registers, where rows of 16,384 elements do not fit beside the gradients of the weights, or
reads it twice. Here one warp copies x and grad_y ahead (TMA), in parts of 4,096 columns that come and go in turn; the
others read each part twice, for the row's mean and for grad_x, and hand it back.

Sources: the operator's reference for the formulas; mbarriers as in FlashAttention's entry, hopper.py.
"""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared  # as Triton 3.6 to 3.8 call it
barrier = getattr(gl, "barrier", None) or gl.thread_barrier
HOPPER = (9, 0)
SIDE = gl.constexpr(64)  # a part is a square, of which the hardware copies at most 256 rows and columns
PART = gl.constexpr(4096)
BYTES = 226 << 10  # of shared memory, for the weights and the parts that wait


def rmsnorm_backward(grad_y, x, weight, rstd):
    """Return (grad_x, grad_weight) as the operator's reference does, on a Hopper GPU.

    Raises:
        RuntimeError: as `of_rows`.
    """
    grad_x, (grad_weight,) = of_rows(grad_y, x, weight, rstd, rstd, 1, 8)
    return grad_x, grad_weight


def of_rows(grad_y, x, weight, mean, rstd, n_vectors, most_parts):
    """Return grad_x and the gradients of the weight and, as the second vector, of a bias; rows have a mean then.

    Raises:
        RuntimeError: without a Hopper GPU, for float32, or where rows are not 2 to `most_parts` whole parts.
    """
    d = x.shape[-1]
    n_parts = d // PART.value
    if torch.cuda.get_device_capability(x.device) != HOPPER:
        raise RuntimeError("needs a Hopper GPU")
    if x.itemsize != 2 or d % PART.value or not 2 <= n_parts <= most_parts:
        raise RuntimeError(f"takes 16 bits, and rows of 2 to {most_parts} times {PART.value:,} columns")
    x_, grad_y_ = (tensor.reshape(-1, d).contiguous() for tensor in (x, grad_y))
    n_rows, grad_x = len(x_), torch.empty_like(x_)
    n_programs = min(torch.cuda.get_device_properties(x.device).multi_processor_count, n_rows)
    partials = x_.new_empty(n_vectors, n_programs, d, dtype=torch.float32)
    n_waiting = (BYTES - d * x.itemsize) // (2 * PART.value * x.itemsize)
    backward_kernel[(n_programs,)](
        *(described(tensor) for tensor in (x_, grad_y_, weight)), mean.reshape(-1), rstd.reshape(-1), grad_x, partials,
        n_rows,
        HAS_MEAN=n_vectors == 2, N_PARTS=n_parts, N_WAITING=n_waiting, COPY_REGISTERS=24,
        num_warps=16 if n_parts * n_vectors <= 4 else 8,  # with 16, more gradients leave too few registers
    )  # fmt: skip
    return grad_x.reshape(x.shape), partials.sum(dim=1).to(weight.dtype)


def described(x):
    """Return a descriptor of x as a matrix of 64 columns, in squares."""
    dtype = gl.bfloat16 if x.dtype == torch.bfloat16 else gl.float16
    square = [SIDE.value, SIDE.value]
    layout = gl.NVMMASharedLayout.get_default_for(square, dtype)
    return TensorDescriptor.from_tensor(x.reshape(-1, SIDE.value), square, layout)


@gluon.jit
def backward_kernel(
    x_desc, grad_y_desc, w_desc, mean_ptr, rstd_ptr, grad_x_ptr, partials_ptr, n_rows,
    HAS_MEAN: gl.constexpr, N_PARTS: gl.constexpr, N_WAITING: gl.constexpr, COPY_REGISTERS: gl.constexpr,
):  # fmt: skip
    """Descriptors of x, grad_y (n_rows, d) and w (d,); mean, rstd (n_rows,), grad_x (n_rows, d).

    partials: (1 or 2, n_programs, d), what the rows of a program give to the gradients of weight and bias. N_WAITING:
    parts that fit in shared memory. Grid: any; a program takes every n_programs-th row.
    """
    x_parts = gl.allocate_shared_memory(x_desc.dtype, [N_WAITING, SIDE, SIDE], x_desc.layout)
    grad_y_parts = gl.allocate_shared_memory(x_desc.dtype, [N_WAITING, SIDE, SIDE], x_desc.layout)
    w_parts = gl.allocate_shared_memory(x_desc.dtype, [N_PARTS, SIDE, SIDE], x_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [N_WAITING, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [N_WAITING, 1], mbarrier.MBarrierLayout())
    w_full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    for i in gl.static_range(N_WAITING):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    mbarrier.init(w_full, count=1)
    fence_async_shared()
    buffers = (x_parts, grad_y_parts, w_parts, full, empty, w_full)
    computing = (mean_ptr, rstd_ptr, grad_x_ptr, partials_ptr, n_rows, buffers)
    copying = (x_desc, grad_y_desc, w_desc, n_rows, buffers)
    gl.warp_specialize(
        [(_compute, (computing, HAS_MEAN, N_PARTS, N_WAITING)), (_copy, (copying, N_PARTS, N_WAITING))],
        [1],
        [COPY_REGISTERS],
    )


@gluon.jit
def _copy(copying, N_PARTS: gl.constexpr, N_WAITING: gl.constexpr):
    """Copy the weights, then parts of rows into whatever place is free."""
    x_desc, grad_y_desc, w_desc, n_rows, buffers = copying
    x_parts, grad_y_parts, w_parts, full, empty, w_full = buffers
    mbarrier.expect(w_full, N_PARTS * w_desc.block_type.nbytes)
    for i in gl.static_range(N_PARTS):
        load(w_desc, [i * SIDE, 0], w_full, w_parts.index(i))
    use = 0
    for row in range(gl.program_id(0), n_rows, gl.num_programs(0)):
        for j in range(N_PARTS):
            place = use % N_WAITING
            mbarrier.wait(empty.index(place), (use // N_WAITING & 1) ^ 1)
            mbarrier.expect(full.index(place), 2 * x_desc.block_type.nbytes)
            at = (row * N_PARTS + j) * SIDE
            load(x_desc, [at, 0], full.index(place), x_parts.index(place))
            load(grad_y_desc, [at, 0], full.index(place), grad_y_parts.index(place))
            use += 1


@gluon.jit
def _compute(computing, HAS_MEAN: gl.constexpr, N_PARTS: gl.constexpr, N_WAITING: gl.constexpr):
    """Go through each row twice: for its means, then for grad_x and the gradients of the vectors."""
    mean_ptr, rstd_ptr, grad_x_ptr, partials_ptr, n_rows, buffers = computing
    x_parts, grad_y_parts, w_parts, full, empty, w_full = buffers
    d: gl.constexpr = N_PARTS * PART
    dtype: gl.constexpr = x_parts.dtype
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [gl.num_warps(), 1], [1, 0])
    nothing = gl.zeros([SIDE, SIDE], gl.float32, LAYOUT)
    across = gl.arange(0, SIDE, layout=gl.SliceLayout(1, LAYOUT))[:, None] * SIDE
    across = across + gl.arange(0, SIDE, layout=gl.SliceLayout(0, LAYOUT))[None, :]
    grad_w = (nothing,) * N_PARTS
    grad_b = (nothing,) * (N_PARTS if HAS_MEAN else 1)
    mbarrier.wait(w_full, 0)
    use = 0
    next_rstd = gl.load(rstd_ptr + gl.program_id(0))
    next_mean = gl.load(mean_ptr + gl.program_id(0)) if HAS_MEAN else 0.0
    for row in range(gl.program_id(0), n_rows, gl.num_programs(0)):
        rstd = next_rstd
        shift = next_mean * rstd
        following = gl.minimum(row + gl.num_programs(0), n_rows - 1)  # asked for now: memory takes a while to answer
        next_rstd = gl.load(rstd_ptr + following)
        next_mean = gl.load(mean_ptr + following) if HAS_MEAN else 0.0
        along = gl.zeros([SIDE], gl.float32, gl.SliceLayout(1, LAYOUT))
        h_sums = _of_threads(nothing)
        for j in gl.static_range(N_PARTS):
            place = (use + j) % N_WAITING
            mbarrier.wait(full.index(place), (use + j) // N_WAITING & 1)
            h = w_parts.index(j).load(LAYOUT).to(gl.float32) * grad_y_parts.index(place).load(LAYOUT).to(gl.float32)
            # Between threads at once: ptxas would put off all products, and keep x and grad_y in registers.
            along += gl.sum(h * (x_parts.index(place).load(LAYOUT).to(gl.float32) * rstd - shift), axis=1)
            if HAS_MEAN:
                h_sums += _of_threads(h)
        if HAS_MEAN:  # both at once: warps meet less often
            h_along = gl.convert_layout(gl.sum(h_sums, axis=1), along.type.layout)
            along_sum, h_sum = gl.reduce((along, h_along), 0, _added)
            h_mean = h_sum / d
        else:
            along_sum = gl.sum(along, axis=0)
            h_mean = 0.0
        along_mean = along_sum / d
        row_ptr = grad_x_ptr + row.to(gl.int64) * d  # type: ignore[attr-defined]
        new_w = ()
        new_b = ()
        for j in gl.static_range(N_PARTS):
            place = (use + j) % N_WAITING
            grad_y = grad_y_parts.index(place).load(LAYOUT).to(gl.float32)
            x_hat = x_parts.index(place).load(LAYOUT).to(gl.float32) * rstd - shift
            h = w_parts.index(j).load(LAYOUT).to(gl.float32) * grad_y
            barrier()
            mbarrier.arrive(empty.index(place), count=1)
            new_w = new_w + (grad_w[j] + grad_y * x_hat,)  # type: ignore[assignment]  # noqa: RUF005
            if HAS_MEAN:
                new_b = new_b + (grad_b[j] + grad_y,)  # type: ignore[assignment]  # noqa: RUF005
            grad_x = (h - x_hat * along_mean) * rstd - h_mean * rstd
            gl.store(row_ptr + j * PART + across, grad_x.to(dtype))
        grad_w = new_w
        if HAS_MEAN:
            grad_b = new_b
        use += N_PARTS
    partials_ptr += gl.program_id(0) * d
    for j in gl.static_range(N_PARTS):
        gl.store(partials_ptr + j * PART + across, grad_w[j])
        if HAS_MEAN:
            gl.store(partials_ptr + gl.num_programs(0) * d + j * PART + across, grad_b[j])


@gluon.jit
def _added(x, y, more_x, more_y):
    return x + more_x, y + more_y


@gluon.jit
def _of_threads(tile):
    """Return the sums of eight neighbours, which a thread has."""
    return gl.sum(tile.reshape([SIDE, SIDE // 8, 8]), axis=2)
