"""Right attention whose programs are scheduled, and whose tensors are handed over, in other ways than the base's."""

from assignment.bank.operators.edits import style
from assignment.bank.operators.flash_attention.styles import two_kernels
from assignment.bank.operators.flash_attention.styles.parts import put

PROBLEMS = ("flash_forward_triton", "flash_backward_triton")
FILES = ("triton_forward.py", "triton_backward.py", "flash_attention.py")

STYLES = (
    style(  # a grid of tiles × heads × batch, four strides a tensor as tuples, autotuned, in base 2; tensors are padded
        # to whole tiles once, and the padded copies are what is kept for backward
        "attention_whole_heads",
        *put(
            TRITON_FORWARD="""\
from torch.nn import functional

TILE_MULTIPLE = 64  # all tile sizes divide it
LOG2_E = math.log2(math.e)
MAX_GRID = 65_535  # CUDA's limit for the second and third grid axis

def flash_forward_triton(q, k, v, is_causal=False):
    _check(q, k, v)
    o, lse2 = _forward([_to_heads(x) for x in (q, k, v)], q.shape, k.shape[-2], is_causal)
    return _from_heads(o, q.shape), (lse2[:, :, : q.shape[-2]] / LOG2_E).reshape(q.shape[:-1])

def _to_heads(x, min_d=16):
    n, d = x.shape[-2:]
    heads = x.shape[-3] if x.ndim > 2 else 1
    x = x.reshape(x.shape[:-3].numel(), heads, n, d)
    return functional.pad(x, (0, max(min_d, triton.next_power_of_2(d)) - d, 0, -n % TILE_MULTIPLE))

def _from_heads(x, shape):
    return x[:, :, : shape[-2], : shape[-1]].reshape(shape)

def _slices(batch, heads):
    starts = [(b, h) for b in range(0, batch, MAX_GRID) for h in range(0, heads, MAX_GRID)]
    return [(slice(b, b + MAX_GRID), slice(h, h + MAX_GRID)) for b, h in starts]

def _with_strides(tensors):
    return [x for tensor in tensors for x in (tensor, tensor.stride())]

def _forward(inputs, q_shape, n_keys, is_causal):
    o = torch.empty_like(inputs[0])
    lse2 = torch.empty(o.shape[:-1], dtype=torch.float32, device=o.device)
    rows, d_tile = o.shape[2:]
    for part in _slices(*o.shape[:2]):
        tensors = [x[part] for x in (*inputs, o, lse2)]
        batch, heads = tensors[0].shape[:2]
        _forward_kernel[lambda meta, h=heads, b=batch: (rows // meta["Q_TILE"], h, b)](
            *_with_strides(tensors), n_keys, q_shape[-1] ** -0.5 * LOG2_E,
            IS_CAUSAL=is_causal, D_TILE=d_tile, ELEMENT_SIZE=o.element_size(),
        )  # fmt: skip
    return o, lse2
""",
            KERNEL="""\
def _fitting(configs, named_args, **kwargs):
    row_bytes = kwargs["D_TILE"] * kwargs["ELEMENT_SIZE"]
    return [c for c in configs if max(c.kwargs["Q_TILE"], c.kwargs["K_TILE"]) * row_bytes <= 16 * 1024]

_autotune = triton.autotune(
    [
        triton.Config({"Q_TILE": 64, "K_TILE": 32}, num_warps=4, num_stages=1),
        triton.Config({"Q_TILE": 16, "K_TILE": 16}, num_warps=4, num_stages=1),
    ],
    key=["IS_CAUSAL", "D_TILE", "ELEMENT_SIZE"],
    prune_configs_by={"early_config_prune": _fitting},
)

@triton.jit
def _tile(ptr, strides, batch, head, first, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = (first + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    cols = tl.arange(0, COLS).to(tl.int64)[None, :]
    return ptr + batch * strides[0] + head * strides[1] + rows * strides[2] + cols * strides[3]

@triton.jit
def _vector(ptr, strides, batch, head, first, ROWS: tl.constexpr):
    rows = (first + tl.arange(0, ROWS)).to(tl.int64)
    return ptr + batch * strides[0] + head * strides[1] + rows * strides[2]

@triton.jit
def _exponents(q, k, scale2, first_query, first_key, n_keys, IS_CAUSAL: tl.constexpr):
    s = tl.dot(q, tl.trans(k)) * scale2
    queries = first_query + tl.arange(0, s.shape[0])[:, None]
    keys = first_key + tl.arange(0, s.shape[1])[None, :]
    s = tl.where(keys < n_keys, s, float("-inf"))
    if IS_CAUSAL:
        s = tl.where(keys <= queries, s, float("-inf"))
    return s

@_autotune
@triton.jit
def _forward_kernel(
    q_ptr, q_strides, k_ptr, k_strides, v_ptr, v_strides, o_ptr, o_strides, lse2_ptr, lse2_strides,
    n_keys, scale2,
    IS_CAUSAL: tl.constexpr, D_TILE: tl.constexpr, ELEMENT_SIZE: tl.constexpr,
    Q_TILE: tl.constexpr, K_TILE: tl.constexpr,
):  # fmt: skip
    head, batch = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    first = tl.program_id(0) * Q_TILE
    q = tl.load(_tile(q_ptr, q_strides, batch, head, first, Q_TILE, D_TILE))
    o = tl.zeros((Q_TILE, D_TILE), dtype=tl.float32)
    row_sum = tl.zeros((Q_TILE,), dtype=tl.float32)
    row_max = tl.full((Q_TILE,), float("-inf"), dtype=tl.float32)
    for start in range(0, tl.minimum(n_keys, first + Q_TILE) if IS_CAUSAL else n_keys, K_TILE):
        k = tl.load(_tile(k_ptr, k_strides, batch, head, start, K_TILE, D_TILE))
        v = tl.load(_tile(v_ptr, v_strides, batch, head, start, K_TILE, D_TILE))
        s = _exponents(q, k, scale2, first, start, n_keys, IS_CAUSAL)
        new_max = tl.maximum(row_max, tl.max(s, axis=1))
        p = tl.exp2(s - new_max[:, None])
        alpha = tl.exp2(row_max - new_max)
        row_sum = row_sum * alpha + tl.sum(p, axis=1)
        o = tl.dot(p.to(v.dtype), v, o * alpha[:, None])
        row_max = new_max
    tl.store(_tile(o_ptr, o_strides, batch, head, first, Q_TILE, D_TILE), (o / row_sum[:, None]).to(q.dtype))
    tl.store(_vector(lse2_ptr, lse2_strides, batch, head, first, Q_TILE), row_max + tl.log2(row_sum))
""",
            TRITON_BACKWARD="""\
from .triton_forward import (
    LOG2_E, _autotune, _exponents, _from_heads, _slices, _tile, _to_heads, _vector, _with_strides
)

def flash_backward_triton(grad_o, q, k, v, o, lse, is_causal=False):
    _check(grad_o, q, k, v, o, lse)
    lse2 = _to_heads(lse.unsqueeze(-1) * LOG2_E, min_d=1).squeeze(-1)
    padded = [_to_heads(x) for x in (grad_o, q, k, v, o)]
    grad_q, grad_k, grad_v = _backward([*padded, lse2], q.shape, k.shape[-2], is_causal)
    return _from_heads(grad_q, q.shape), _from_heads(grad_k, k.shape), _from_heads(grad_v, v.shape)

def _backward(inputs, q_shape, n_keys, is_causal):
    grad_o, q, k, v, o, lse2 = inputs
    # Padding of grad_o and delta is 0: whatever P is there, it adds nothing to dV, and dS is 0.
    delta = (grad_o.float() * o.float()).sum(-1)
    grads = [torch.empty_like(x) for x in (q, k, v)]
    constants = {"IS_CAUSAL": is_causal, "D_TILE": q.shape[-1], "ELEMENT_SIZE": q.element_size()}
    for part in _slices(*q.shape[:2]):
        arguments = _with_strides([x[part] for x in (grad_o, q, k, v, lse2, delta)])
        grad_q, *grads_kv = (x[part] for x in grads)
        batch, heads = grad_q.shape[:2]
        _grad_q_kernel[lambda meta, h=heads, b=batch: (q.shape[2] // meta["Q_TILE"], h, b)](
            *arguments, *_with_strides([grad_q]), n_keys, q_shape[-1] ** -0.5, **constants
        )
        _grad_kv_kernel[lambda meta, h=heads, b=batch: (k.shape[2] // meta["K_TILE"], h, b)](
            *arguments, *_with_strides(grads_kv), q.shape[2], n_keys, q_shape[-1] ** -0.5, **constants
        )
    return grads
""",
            B_KERNELS="""\
@triton.jit
def _p_and_ds(q, k, v, go, lse2, delta, first_query, first_key, n_keys, scale, IS_CAUSAL: tl.constexpr):
    s = _exponents(q, k, scale * 1.4426950408889634, first_query, first_key, n_keys, IS_CAUSAL)
    p = tl.exp2(s - lse2[:, None])
    return p, p * (tl.dot(go, tl.trans(v)) - delta[:, None])

@_autotune
@triton.jit
def _grad_q_kernel(
    go_ptr, go_strides, q_ptr, q_strides, k_ptr, k_strides, v_ptr, v_strides,
    lse2_ptr, lse2_strides, delta_ptr, delta_strides, grad_q_ptr, grad_q_strides,
    n_keys, scale,
    IS_CAUSAL: tl.constexpr, D_TILE: tl.constexpr, ELEMENT_SIZE: tl.constexpr,
    Q_TILE: tl.constexpr, K_TILE: tl.constexpr,
):  # fmt: skip
    head, batch = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    first = tl.program_id(0) * Q_TILE
    q = tl.load(_tile(q_ptr, q_strides, batch, head, first, Q_TILE, D_TILE))
    go = tl.load(_tile(go_ptr, go_strides, batch, head, first, Q_TILE, D_TILE))
    lse2 = tl.load(_vector(lse2_ptr, lse2_strides, batch, head, first, Q_TILE))
    delta = tl.load(_vector(delta_ptr, delta_strides, batch, head, first, Q_TILE))
    grad_q = tl.zeros((Q_TILE, D_TILE), dtype=tl.float32)
    for start in range(0, tl.minimum(n_keys, first + Q_TILE) if IS_CAUSAL else n_keys, K_TILE):
        k = tl.load(_tile(k_ptr, k_strides, batch, head, start, K_TILE, D_TILE))
        v = tl.load(_tile(v_ptr, v_strides, batch, head, start, K_TILE, D_TILE))
        _, ds = _p_and_ds(q, k, v, go, lse2, delta, first, start, n_keys, scale, IS_CAUSAL)
        grad_q = tl.dot(ds.to(k.dtype), k, grad_q)
    tl.store(_tile(grad_q_ptr, grad_q_strides, batch, head, first, Q_TILE, D_TILE), (grad_q * scale).to(q.dtype))

@_autotune
@triton.jit
def _grad_kv_kernel(
    go_ptr, go_strides, q_ptr, q_strides, k_ptr, k_strides, v_ptr, v_strides,
    lse2_ptr, lse2_strides, delta_ptr, delta_strides, grad_k_ptr, grad_k_strides, grad_v_ptr, grad_v_strides,
    q_rows, n_keys, scale,
    IS_CAUSAL: tl.constexpr, D_TILE: tl.constexpr, ELEMENT_SIZE: tl.constexpr,
    Q_TILE: tl.constexpr, K_TILE: tl.constexpr,
):  # fmt: skip
    head, batch = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    first = tl.program_id(0) * K_TILE
    k = tl.load(_tile(k_ptr, k_strides, batch, head, first, K_TILE, D_TILE))
    v = tl.load(_tile(v_ptr, v_strides, batch, head, first, K_TILE, D_TILE))
    grad_k = tl.zeros((K_TILE, D_TILE), dtype=tl.float32)
    grad_v = tl.zeros((K_TILE, D_TILE), dtype=tl.float32)
    for start in range(first // Q_TILE * Q_TILE if IS_CAUSAL else 0, q_rows, Q_TILE):
        q = tl.load(_tile(q_ptr, q_strides, batch, head, start, Q_TILE, D_TILE))
        go = tl.load(_tile(go_ptr, go_strides, batch, head, start, Q_TILE, D_TILE))
        lse2 = tl.load(_vector(lse2_ptr, lse2_strides, batch, head, start, Q_TILE))
        delta = tl.load(_vector(delta_ptr, delta_strides, batch, head, start, Q_TILE))
        p, ds = _p_and_ds(q, k, v, go, lse2, delta, start, first, n_keys, scale, IS_CAUSAL)
        grad_v = tl.dot(tl.trans(p).to(go.dtype), go, grad_v)
        grad_k = tl.dot(tl.trans(ds).to(q.dtype), q, grad_k)
    tl.store(_tile(grad_k_ptr, grad_k_strides, batch, head, first, K_TILE, D_TILE), (grad_k * scale).to(k.dtype))
    tl.store(_tile(grad_v_ptr, grad_v_strides, batch, head, first, K_TILE, D_TILE), grad_v.to(v.dtype))
""",
            AUTOGRAD="""\
from torch.autograd.function import once_differentiable

from .triton_backward import _backward
from .triton_forward import _check, _forward, _from_heads, _to_heads

class FlashAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, is_causal):
        _check(q, k, v)
        padded = [_to_heads(x) for x in (q, k, v)]
        o, lse2 = _forward(padded, q.shape, k.shape[-2], is_causal)
        ctx.save_for_backward(*padded, o, lse2)
        ctx.shapes, ctx.is_causal = (q.shape, k.shape), is_causal
        return _from_heads(o, q.shape).clone()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_o):
        q_shape, k_shape = ctx.shapes
        grads = _backward([_to_heads(grad_o), *ctx.saved_tensors], q_shape, k_shape[-2], ctx.is_causal)
        shapes = (q_shape, k_shape, k_shape)
        return *(_from_heads(grad, shape) for grad, shape in zip(grads, shapes, strict=True)), None
""",
        ),
    ),
    style(  # one program a multiprocessor, whose flattened loop takes every n-th tile in a swizzled order; named tuples
        # carry a tensor's pointer and strides; a function of the walk over keys is a constexpr argument
        "attention_whole_static_schedule",
        *put(
            TRITON_FORWARD="""\
from typing import NamedTuple

GROUP = 4

class Rows(NamedTuple):
    ptr: torch.Tensor
    batch: int  # strides
    row: int
    col: int

def flash_forward_triton(q, k, v, is_causal=False):
    _check(q, k, v)
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    if q.numel() > 0:
        shape, tile, grid = _plan(q, k, q.shape[-2])
        _forward_kernel[grid](
            _rows(q), _rows(k), _rows(v), _rows(o), lse, *shape, IS_CAUSAL=is_causal, NUM_SMS=grid[0], **tile
        )
    return o, lse

def _rows(x):
    x = x.reshape(-1, *x.shape[-2:])
    return Rows(x, *x.stride())

def _plan(q, k, n):
    d = q.shape[-1]
    d_tile = max(16, triton.next_power_of_2(d))
    tile = 64 if d_tile * q.element_size() <= 128 else 32 if d_tile * q.element_size() <= 512 else 16
    n_batches = q.shape[:-2].numel()
    num_sms = torch.cuda.get_device_properties(q.device).multi_processor_count
    options = {"TILE": tile, "D_TILE": d_tile, "GROUP": GROUP, "num_warps": 4, "num_stages": 1}
    shape = (n_batches, q.shape[-2], k.shape[-2], d, d**-0.5)
    return shape, options, (min(num_sms, n_batches * triton.cdiv(n, tile)),)
""",
            KERNEL="""\
@triton.jit
def _compute_pid(tile_id, n_batches, n_tiles, GROUP: tl.constexpr):
    return tl.swizzle2d(tile_id // n_tiles, tile_id % n_tiles, n_batches, n_tiles, GROUP)

@triton.jit
def _pointers(x, batch, rows, D_TILE: tl.constexpr):
    cols = tl.max_contiguous(tl.arange(0, D_TILE), D_TILE).to(tl.int64)
    return x.ptr + batch.to(tl.int64) * x.batch + rows.to(tl.int64)[:, None] * x.row + cols[None, :] * x.col

@triton.jit
def _load(x, batch, rows, n, d, D_TILE: tl.constexpr):
    mask = (rows < n)[:, None] & (tl.arange(0, D_TILE) < d)[None, :]
    return tl.load(_pointers(x, batch, rows, D_TILE), mask=mask, other=0.0)

@triton.jit
def _store(x, tile, batch, rows, n, d, D_TILE: tl.constexpr):
    mask = (rows < n)[:, None] & (tl.arange(0, D_TILE) < d)[None, :]
    tl.store(_pointers(x, batch, rows, D_TILE), tile.to(x.ptr.dtype.element_ty), mask=mask)

@triton.jit
def _walk(state, fixed, k, v, batch, queries, end, n_keys, d, FOLD: tl.constexpr, IS_CAUSAL: tl.constexpr,
          TILE: tl.constexpr, D_TILE: tl.constexpr):  # fmt: skip
    for start in tl.range(0, end, TILE, num_stages=1, disallow_acc_multi_buffer=True):
        keys = start + tl.arange(0, TILE)
        visible = (keys < n_keys)[None, :]
        if IS_CAUSAL:
            visible = visible & (keys[None, :] <= queries[:, None])
        k_tile = _load(k, batch, keys, n_keys, d, D_TILE)
        v_tile = _load(v, batch, keys, n_keys, d, D_TILE)
        state = FOLD(state, fixed, k_tile, v_tile, visible)
    return state

@triton.jit
def _fold_forward(state, fixed, k, v, visible):
    row_max, row_sum, o = state
    q, scale = fixed
    s = tl.where(visible, tl.dot(q, k.T) * scale, float("-inf"))
    new_max = tl.maximum(row_max, tl.max(s, axis=1))
    p = tl.exp(s - new_max[:, None])
    rescale = tl.exp(row_max - new_max)
    return new_max, row_sum * rescale + tl.sum(p, axis=1), tl.dot(p.to(v.dtype), v, acc=o * rescale[:, None])

@triton.jit
def _forward_kernel(
    q: Rows, k: Rows, v: Rows, o: Rows, lse_ptr, n_batches, n_queries, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr, NUM_SMS: tl.constexpr, TILE: tl.constexpr, D_TILE: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    tl.assume(n_queries > 0)
    tl.assume(n_keys > 0)
    n_tiles = tl.cdiv(n_queries, TILE)
    for tile_id in tl.range(tl.program_id(0), n_batches * n_tiles, NUM_SMS, flatten=True, warp_specialize=False):
        batch, tile = _compute_pid(tile_id, n_batches, n_tiles, GROUP)
        queries = tile * TILE + tl.arange(0, TILE)
        end = tl.minimum(n_keys, (tile + 1) * TILE) if IS_CAUSAL else n_keys
        fixed = (_load(q, batch, queries, n_queries, d, D_TILE), scale)
        row_max = tl.full((TILE,), float("-inf"), tl.float32)
        state = (row_max, tl.zeros((TILE,), tl.float32), tl.zeros((TILE, D_TILE), tl.float32))
        row_max, row_sum, acc = _walk(
            state, fixed, k, v, batch, queries, end, n_keys, d, _fold_forward, IS_CAUSAL, TILE, D_TILE
        )
        _store(o, acc / row_sum[:, None], batch, queries, n_queries, d, D_TILE)
        lse_ptrs = lse_ptr + batch.to(tl.int64) * n_queries + queries
        tl.store(lse_ptrs, row_max + tl.log(row_sum), mask=queries < n_queries)
""",
            TRITON_BACKWARD="""\
from .triton_forward import Rows, _compute_pid, _load as _load_rows, _plan, _rows, _store as _store_rows, _walk

def flash_backward_triton(grad_o, q, k, v, o, lse, is_causal=False):
    _check(grad_o, q, k, v, o, lse)
    grad_q, grad_k, grad_v = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    if q.numel() == 0:
        return grad_q, grad_k, grad_v
    delta = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    lse = lse.contiguous()
    inputs = [_rows(x) for x in (grad_o, q, k, v)]
    shape, tile, grid = _plan(q, k, q.shape[-2])
    _grad_q_kernel[grid](
        *inputs, _rows(o), lse, delta, _rows(grad_q), *shape, IS_CAUSAL=is_causal, NUM_SMS=grid[0], **tile
    )
    tensors = [x.ptr for x in inputs] + [lse.reshape(-1, q.shape[-2]), delta.reshape(-1, q.shape[-2])]
    _grad_kv_kernel[shape[0], triton.cdiv(k.shape[-2], tile["TILE"])](
        *tensors, *(stride for x in tensors for stride in x.stride()), *shape[1:], grad_k, grad_v,
        IS_CAUSAL=is_causal, Q_TILE=tile["TILE"], K_TILE=tile["TILE"], D_TILE=tile["D_TILE"], num_stages=1,
    )  # fmt: skip
    return grad_q, grad_k, grad_v
""",
            B_KERNELS="""\
@triton.jit
def _fold_grad_q(state, fixed, k, v, visible):
    q, grad_o, lse, delta, scale = fixed
    p = tl.where(visible, tl.exp(tl.dot(q, k.T) * scale - lse[:, None]), 0.0)
    grad_s = p * (tl.dot(grad_o, v.T) - delta[:, None])
    return (tl.dot(grad_s.to(k.dtype), k, acc=state[0]),)

@triton.jit
def _grad_q_kernel(
    grad_o: Rows, q: Rows, k: Rows, v: Rows, o: Rows, lse_ptr, delta_ptr, grad_q: Rows,
    n_batches, n_queries, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr, NUM_SMS: tl.constexpr, TILE: tl.constexpr, D_TILE: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    tl.assume(n_queries > 0)
    n_tiles = tl.cdiv(n_queries, TILE)
    for tile_id in tl.range(tl.program_id(0), n_batches * n_tiles, NUM_SMS, flatten=True, warp_specialize=False):
        batch, tile = _compute_pid(tile_id, n_batches, n_tiles, GROUP)
        queries = tile * TILE + tl.arange(0, TILE)
        rows = batch.to(tl.int64) * n_queries + queries
        grad_o_tile = _load_rows(grad_o, batch, queries, n_queries, d, D_TILE)
        o_tile = _load_rows(o, batch, queries, n_queries, d, D_TILE).to(tl.float32)
        delta = tl.sum(grad_o_tile.to(tl.float32) * o_tile, axis=1)
        tl.store(delta_ptr + rows, delta, mask=queries < n_queries)
        lse = tl.load(lse_ptr + rows, mask=queries < n_queries, other=float("inf"))
        fixed = (_load_rows(q, batch, queries, n_queries, d, D_TILE), grad_o_tile, lse, delta, scale)
        end = tl.minimum(n_keys, (tile + 1) * TILE) if IS_CAUSAL else n_keys
        state = _walk(
            (tl.zeros((TILE, D_TILE), tl.float32),), fixed, k, v, batch, queries, end, n_keys, d,
            _fold_grad_q, IS_CAUSAL, TILE, D_TILE,
        )  # fmt: skip
        _store_rows(grad_q, state[0] * scale, batch, queries, n_queries, d, D_TILE)

"""
            + two_kernels.HELPERS
            + two_kernels.GRAD_KV,
        ),
    ),
)
