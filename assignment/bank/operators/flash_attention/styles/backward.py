"""Right backward passes in other styles than the base's."""

import textwrap

from assignment.bank.operators.edits import style
from assignment.bank.operators.flash_attention.styles import parts, two_kernels
from assignment.bank.operators.flash_attention.styles.parts import before, lines, put

PROBLEMS = ("flash_backward_triton",)
FILES = ("triton_backward.py",)

P_AND_DS = "        p, grad_s = _p_and_ds(grad_o, q, k, v, lse, delta, queries, keys, n_keys, scale, IS_CAUSAL)\n"
TRANSPOSED_P = "        p = _transposed_p(q, k, lse, queries, keys, n_keys, scale, IS_CAUSAL)\n"

STYLES = (
    style(  # delta in a line of PyTorch; a grid of one dimension; sums go on in tl.dot, relaxed atomics
        "backward_fused_atomics",
        (parts.B_DELTA, ""),
        ("def _delta_kernel", ""),
        *lines("""
            delta = torch.empty((n_batches, n_queries), dtype=torch.float32, device=q.device) →
                delta = (grad_o.float() * o.float()).sum(dim=-1)
            _backward_kernel[key_grid] → _backward_kernel[n_batches * triton.cdiv(n_keys, tile_size),]
            batch = tl.program_id(0).to(tl.int64)⏎    first_key = tl.program_id(1) * K_TILE_SIZE →
                n_tiles = tl.cdiv(n_keys, K_TILE_SIZE)⏎    batch =
                (tl.program_id(0) // n_tiles).to(tl.int64)⏎    first_key = tl.program_id(0) % n_tiles * K_TILE_SIZE
            start = first_key // Q_TILE_SIZE * Q_TILE_SIZE → start = first_key // Q_TILE_SIZE
            for first_query in range(start, n_queries, Q_TILE_SIZE): →
                for tile in range(start, tl.cdiv(n_queries, Q_TILE_SIZE)):
            (first_query + tl.arange → (tile * Q_TILE_SIZE + tl.arange
            s = tl.where(visible, s, float("-inf"))⏎        p = tl.exp(s - lse[:, None]) →
                p = tl.exp(tl.where(visible, s - lse[:, None], float("-inf")))
            grad_v += tl.dot(tl.trans(p.to(grad_o.dtype)), grad_o) →
                grad_v = tl.dot(tl.trans(p).to(v.dtype), grad_o, acc=grad_v)
            grad_k += tl.dot(tl.trans(grad_s.to(q.dtype)), q) * scale →
                grad_k = tl.dot(tl.trans(grad_s).to(q.dtype), q, acc=grad_k)
            grad_k.to(grad_k_ptr → (grad_k * scale).to(grad_k_ptr
            tl.atomic_add(grad_q_ptrs, grad_q, mask=q_mask) →
                tl.atomic_add(grad_q_ptrs, grad_q, mask=q_mask, sem="relaxed")
        """),
    ),
    style(  # algorithm 2 as printed: a program a batch walks over all tiles; dQ is read, added to and written back
        "backward_fused_loop",
        (parts.B_DELTA, ""),
        (
            "    first_key = tl.program_id(1) * K_TILE_SIZE\n" + parts.B_TILE,
            "    for first_key in range(0, n_keys, K_TILE_SIZE):\n" + textwrap.indent(parts.B_TILE, "    "),
        ),
        *lines("""
            _backward_kernel[key_grid] → _backward_kernel[n_batches,]
            lse, delta, grad_q, grad_k, grad_v,⏎ → lse, o, grad_q, grad_k, grad_v,⏎
            lse.stride(0), lse.stride(1), delta.stride(0), delta.stride(1), →
                lse.stride(0), lse.stride(1), o.stride(0), o.stride(1), o.stride(2),
            lse_ptr, delta_ptr, grad_q_ptr → lse_ptr, o_ptr, grad_q_ptr
            stride_lb, stride_ln, stride_db, stride_dn, → stride_lb, stride_ln, stride_ob, stride_on, stride_od,
            lse = tl.load(lse_ptrs, mask=query_mask, other=0.0) →
                lse = tl.load(lse_ptrs, mask=query_mask, other=float("inf"))
            delta_ptrs = delta_ptr + batch * stride_db + queries * stride_dn →
                o_ptrs = o_ptr + batch * stride_ob + queries[:, None] * stride_on + cols[None, :] * stride_od
            delta = tl.load(delta_ptrs, mask=query_mask, other=0.0) →
                o = tl.load(o_ptrs, mask=q_mask, other=0.0)⏎            delta =
                tl.sum(grad_o.to(tl.float32) * o.to(tl.float32), axis=1)
            tl.atomic_add(grad_q_ptrs, grad_q, mask=q_mask) →
                grad_q += tl.load(grad_q_ptrs, mask=q_mask, other=0.0)⏎            tl.store(grad_q_ptrs, grad_q,
                mask=q_mask)⏎            tl.debug_barrier()  # another thread may read these for the next tile of keys
        """),
    ),
    style(  # no mask in loads and stores: copies padded with zeros to whole tiles, and lse with +∞, so that P is 0
        "backward_padded",
        *two_kernels.EDITS,
        (
            "    inputs = [grad_o",
            """\
    n_queries_padded, d_padded = n_queries + -n_queries % 64, max(16, triton.next_power_of_2(d))
    grad_o, q, k, v = (
        functional.pad(x, (0, d_padded - d, 0, -x.shape[1] % 64)).contiguous() for x in (grad_o, q, k, v)
    )
    lse, delta = (functional.pad(x, (0, -n_queries % 64), value=fill) for x, fill in ((lse, torch.inf), (delta, 0.0)))
    grad_q, grad_k, grad_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    inputs = [grad_o""",
        ),
        *lines("""
            import torch⏎ → import torch⏎from torch.nn import functional⏎
            *(stride for x in inputs for stride in x.stride()), n_queries, → *(stride for x in inputs for
                stride in x.stride()), n_queries_padded,
            return tl.load(ptrs, mask=(rows < n_rows)[:, None] & (cols < d)[None, :], other=0.0) → return tl.load(ptrs)
            x.to(ptr.dtype.element_ty), mask=(rows < n_rows)[:, None] & (cols < d)[None, :] → x.to(ptr.dtype.element_ty)
            ptrs = ptr + rows.to(tl.int64)[:, None] * d → ptrs = ptr + rows.to(tl.int64)[:, None] * D_TILE
            grad_q_ptr + batch * n_queries * d → grad_q_ptr + batch * q_b
            ptr + rows.to(tl.int64) * stride, mask=rows < n_rows, other=other → ptr + rows.to(tl.int64) * stride
            grad_k_ptr + batch * n_keys * d → grad_k_ptr + batch * k_b
            grad_v_ptr + batch * n_keys * d → grad_v_ptr + batch * v_b
            grad_q = grad_q.to(q.dtype) → grad_q, grad_k, grad_v = grad_q[:, :n_queries, :d], grad_k[:, :n_keys, :d],
                grad_v[:, :n_keys, :d]⏎    grad_q = grad_q.to(q.dtype)
        """),
    ),
    style(  # on k scaled by 1/√d once it is loaded, in its own dtype; one kernel makes dQ or, by a flag, dK and dV, on
        # one grid for the longer of the two
        "backward_prescaled",
        *two_kernels.EDITS,
        (
            "        _grad_q_kernel[n_batches, triton.cdiv(n_queries, tile)](*arguments, grad_q, **options)\n"
            "        _grad_kv_kernel[n_batches, triton.cdiv(n_keys, tile)](*arguments, grad_k, grad_v, **options)\n",
            """\
        for of_keys in (False, True):
            _pass_kernel[n_batches, triton.cdiv(max(n_queries, n_keys), tile)](
                *arguments, grad_q, grad_k, grad_v, OF_KEYS=of_keys, **options
            )
""",
        ),
        (
            "@triton.jit\ndef _load(",
            "@triton.jit\ndef _pass_kernel(\n"
            + two_kernels.SIGNATURE.format(
                arguments=two_kernels.ARGUMENTS, gradients="grad_q_ptr, grad_k_ptr, grad_v_ptr, OF_KEYS: tl.constexpr"
            )
            + f"""\
    if OF_KEYS:
        _grad_kv_kernel({two_kernels.ARGUMENTS}, grad_k_ptr, grad_v_ptr, IS_CAUSAL, Q_TILE, K_TILE, D_TILE)
    else:
        _grad_q_kernel({two_kernels.ARGUMENTS}, grad_q_ptr, IS_CAUSAL, Q_TILE, K_TILE, D_TILE)

@triton.jit
def _scaled(k, scale):
    return (k.to(tl.float32) * scale).to(k.dtype)

@triton.jit
def _load(""",
        ),
        *lines("""
            s = tl.dot(q, tl.trans(k)) * scale → s = tl.dot(q, tl.trans(_scaled(k, scale)))
            grad_q += tl.dot(grad_s.to(k.dtype), k) → grad_q += tl.dot(grad_s.to(k.dtype), _scaled(k, scale))
            grad_q * scale → grad_q
        """),
    ),
    style(  # does not look at o: delta is Σ P ∘ dP, from a pass over the keys of its own; what three launches have in
        # common is an object that is called
        "backward_recompute_delta",
        *two_kernels.EDITS,
        (
            two_kernels.LAUNCH,
            """\
    launch = _Launch([grad_o, q, k, v, lse, delta], n_keys, is_causal)
    launch(_delta_kernel, n_queries, delta)
    launch(_grad_q_kernel, n_queries, grad_q)
    launch(_grad_kv_kernel, n_keys, grad_k, grad_v)
""",
        ),
        *before(
            CHECK="""\
class _Launch:
    def __init__(self, inputs, n_keys, is_causal):
        self.n_batches, n_queries, d = inputs[0].shape
        d_tile = max(triton.next_power_of_2(d), 16)
        self.tile = 64 if d_tile <= 32 else 32 if d_tile * inputs[0].dtype.itemsize <= 512 else 16
        strides = [stride for x in inputs for stride in x.stride()]
        self.arguments = [*inputs, *strides, n_queries, n_keys, d, d**-0.5]
        self.constants = {"IS_CAUSAL": is_causal, "Q_TILE": self.tile, "K_TILE": self.tile, "D_TILE": d_tile}

    def __call__(self, kernel, n_rows, *written):
        if self.n_batches > 0:
            grid = (self.n_batches, triton.cdiv(n_rows, self.tile))
            kernel[grid](*self.arguments, *written, **self.constants, num_stages=1)
""",
        ),
        (
            "@triton.jit\ndef _grad_q_kernel(",
            parts.changed(
                two_kernels.GRAD_Q,
                *lines("""
                    grad_q_kernel → delta_kernel
                    scale, grad_q_ptr → scale, new_delta_ptr
                    ⏎    delta = _vector(delta_ptr + batch * delta_b, queries, delta_n, n_queries, 0.0) →
                    grad_q = tl.zeros((Q_TILE, D_TILE), tl.float32) →
                        delta, none = tl.zeros((Q_TILE,), tl.float32), tl.zeros((Q_TILE,), tl.float32)
                    lse, delta, queries → lse, none, queries
                    grad_q += tl.dot(grad_s.to(k.dtype), k) → delta += tl.sum(grad_s, axis=1)
                    _store(grad_q_ptr + batch * n_queries * d, grad_q * scale, queries, n_queries, d, D_TILE) →
                        tl.store(delta_ptr + batch * delta_b + queries * delta_n, delta, mask=queries < n_queries)
                """),
            )
            + "@triton.jit\ndef _grad_q_kernel(",
        ),
        *lines("""
            delta = (grad_o.float() * o.float()).sum(dim=-1) →
                delta = torch.empty((n_batches, n_queries), dtype=torch.float32, device=q.device)
        """),
    ),
    style(  # few keys and many queries: a program makes the share of dK and dV that one chunk of queries gives one tile
        # of keys, zeros where it sees none of them, and PyTorch adds up the shares
        "backward_split_queries",
        *two_kernels.EDITS,
        *lines("""
            if n_batches > 0: → per_chunk = triton.cdiv(triton.cdiv(n_queries, tile), 4)⏎    n_chunks =
                triton.cdiv(n_queries, per_chunk * tile)⏎    shares = [q.new_empty(n_chunks, n_batches, n_keys, d,
                dtype=torch.float32) for _ in range(2)]⏎    if n_batches > 0:
            _grad_kv_kernel[n_batches, triton.cdiv(n_keys, tile)](*arguments, grad_k, grad_v, **options) →
                _grad_kv_kernel[n_batches, triton.cdiv(n_keys, tile), n_chunks](*arguments, *shares, n_batches,
                per_chunk, **options)⏎    grad_k, grad_v = (share.sum(0).to(k.dtype) for share in shares)
            grad_k_ptr, grad_v_ptr, → grad_k_ptr, grad_v_ptr, n_batches, per_chunk,
            for first_query in range(first_key // Q_TILE * Q_TILE if IS_CAUSAL else 0, n_queries, Q_TILE): →
                chunk = tl.program_id(2)⏎    start = chunk * per_chunk⏎    stop =
                tl.minimum(start + per_chunk, tl.cdiv(n_queries, Q_TILE))⏎    if IS_CAUSAL:⏎        start =
                tl.maximum(start, first_key // Q_TILE)⏎    for tile in range(start, stop):⏎        first_query =
                tile * Q_TILE
            grad_k_ptr + batch * n_keys * d → grad_k_ptr + (chunk * n_batches + batch) * n_keys * d
            grad_v_ptr + batch * n_keys * d → grad_v_ptr + (chunk * n_batches + batch) * n_keys * d
        """),
    ),
    style(  # a kernel for each gradient: that of dV needs neither V nor delta, that of dQ leaves delta to that of dK;
        # P is computed transposed where keys are the rows of the result
        "backward_three_kernels",
        *two_kernels.EDITS,
        (
            two_kernels.GRAD_KV,
            parts.changed(
                two_kernels.GRAD_KV,
                (P_AND_DS, TRANSPOSED_P + "        grad_s = p * (tl.dot(v, grad_o.T) - delta[None, :])\n"),
                *lines("""
                    _grad_kv_kernel → _grad_k_kernel
                    ⏎        grad_v += tl.dot(tl.trans(p).to(grad_o.dtype), grad_o) →
                    ⏎    grad_v = tl.zeros((K_TILE, D_TILE), tl.float32) →
                    tl.trans(grad_s) → grad_s
                    ⏎    _store(grad_v_ptr + batch * n_keys * d, grad_v, keys, n_keys, d, D_TILE) →
                """),
            )
            + "\n"
            + parts.changed(
                two_kernels.GRAD_KV,
                (P_AND_DS, TRANSPOSED_P),
                *lines("""
                    _grad_kv_kernel → _grad_v_kernel
                    ⏎        delta = _vector(delta_ptr + batch * delta_b, queries, delta_n, n_queries, 0.0) →
                    ⏎        grad_k += tl.dot(tl.trans(grad_s).to(q.dtype), q) →
                    ⏎    grad_k = tl.zeros((K_TILE, D_TILE), tl.float32) →
                    ⏎    v = _load(v_ptr + batch * v_b, keys, v_n, v_d, n_keys, d, D_TILE) →
                    tl.trans(p) → p
                    ⏎    _store(grad_k_ptr + batch * n_keys * d, grad_k * scale, keys, n_keys, d, D_TILE) →
                """),
            ),
        ),
        (
            "@triton.jit\ndef _load(",
            """\
@triton.jit
def _transposed_p(q, k, lse, queries, keys, n_keys, scale, IS_CAUSAL: tl.constexpr):
    seen = keys[:, None] < n_keys
    if IS_CAUSAL:
        seen = seen & (keys[:, None] <= queries[None, :])
    return tl.exp(tl.where(seen, tl.dot(k, q.T) * scale, float("-inf")) - lse[None, :])

@triton.jit
def _load(""",
        ),
        *lines("""
            grad_kv_kernel[n_batches, triton.cdiv(n_keys, tile)](*arguments, grad_k, grad_v, **options) →
                grad_k_kernel[n_batches, triton.cdiv(n_keys, tile)](*arguments, grad_k, grad_v,
                **options)⏎        _grad_v_kernel[n_batches, triton.cdiv(n_keys, tile)](*arguments, grad_k, grad_v,
                **options)
            *arguments, grad_q, → *arguments, o, *o.stride(), grad_q,
            delta = (grad_o.float() * o.float()).sum(dim=-1) →
                delta = torch.empty((n_batches, n_queries), dtype=torch.float32, device=q.device)
            scale, grad_q_ptr → scale, o_ptr, o_b, o_n, o_d, grad_q_ptr
            delta = _vector(delta_ptr + batch * delta_b, queries, delta_n, n_queries, 0.0)⏎    grad_q →
                o = _load(o_ptr + batch * o_b, queries, o_n, o_d, n_queries, d, D_TILE)⏎    delta =
                tl.sum(grad_o.to(tl.float32) * o.to(tl.float32), axis=1)⏎    tl.store(delta_ptr + batch * delta_b +
                queries * delta_n, delta, mask=queries < n_queries)⏎    grad_q
        """),
    ),
    style(  # the least tiles that tl.dot takes, in exact products; a third axis of the grid runs along d: a program
        # takes whole rows and writes 64 columns; the second one is limited, programs take further tiles in turns
        "backward_tiles_16",
        *two_kernels.EDITS,
        *lines("""
            def _grad_q_kernel( → def _grad_q_tile(
            scale, grad_q_ptr, → scale, grad_q_ptr, tile,
            first_query = tl.program_id(0).to(tl.int64), tl.program_id(1) * Q_TILE →
                first_query = tl.program_id(0).to(tl.int64), tile * Q_TILE
            def _grad_kv_kernel( → def _grad_kv_tile(
            scale, grad_k_ptr, grad_v_ptr, → scale, grad_k_ptr, grad_v_ptr, tile,
            first_key = tl.program_id(0).to(tl.int64), tl.program_id(1) * K_TILE →
                first_key = tl.program_id(0).to(tl.int64), tile * K_TILE
        """),
        *(
            (
                f"@triton.jit\ndef _grad_{kind}_tile(\n",
                f"@triton.jit\ndef _grad_{kind}_kernel(\n"
                + two_kernels.SIGNATURE.format(arguments=two_kernels.ARGUMENTS, gradients=gradients)
                + f"""\
    for tile in range(tl.program_id(1), tl.cdiv({length}, Q_TILE), tl.num_programs(1)):
        _grad_{kind}_tile({two_kernels.ARGUMENTS}, {gradients}, tile, IS_CAUSAL, Q_TILE, K_TILE, D_TILE)

@triton.jit
def _grad_{kind}_tile(
""",
            )
            for kind, gradients, length in (
                ("q", "grad_q_ptr", "n_queries"),
                ("kv", "grad_k_ptr, grad_v_ptr", "n_keys"),
            )
        ),
        *lines("""
            tile = 64 if d_tile <= 32 else 32 if d_tile * q.element_size() <= 512 else 16 → tile = 16
            "num_stages": 1 → "num_stages": 1, "num_warps": 1
            triton.cdiv(n_queries, tile)] → min(triton.cdiv(n_queries, tile), 65_535), triton.cdiv(d, 64)]
            triton.cdiv(n_keys, tile)] → min(triton.cdiv(n_keys, tile), 65_535), triton.cdiv(d, 64)]
            s = tl.dot(q, tl.trans(k)) → s = tl.dot(q, tl.trans(k), input_precision="ieee")
            tl.dot(grad_o, tl.trans(v)) → tl.dot(grad_o, tl.trans(v), input_precision="ieee")
            p = tl.exp(tl.where(visible, s, float("-inf")) - lse[:, None]) →
                visible = visible & (lse < float("inf"))[:, None]⏎    p = tl.where(visible, tl.exp(tl.where(visible,
                s - lse[:, None], 0.0)), 0.0)
            grad_q = tl.zeros((Q_TILE, D_TILE) → first_col = tl.program_id(2).to(tl.int64) *
                64⏎    D_SLICE: tl.constexpr = D_TILE if D_TILE < 64 else 64⏎    grad_q = tl.zeros((Q_TILE, D_SLICE)
            grad_k = tl.zeros((K_TILE, D_TILE) → first_col = tl.program_id(2).to(tl.int64) *
                64⏎    D_SLICE: tl.constexpr = D_TILE if D_TILE < 64 else 64⏎    grad_k = tl.zeros((K_TILE, D_SLICE)
            grad_v = tl.zeros((K_TILE, D_TILE) → grad_v = tl.zeros((K_TILE, D_SLICE)
            grad_q += tl.dot(grad_s.to(k.dtype), k) → own_k = _load(k_ptr + batch * k_b + first_col * k_d, keys, k_n,
                k_d, n_keys, d - first_col, D_SLICE)⏎        grad_q +=
                tl.dot(grad_s.to(k.dtype), own_k, input_precision="ieee")
            grad_v += tl.dot(tl.trans(p).to(grad_o.dtype), grad_o) → own_q = _load(q_ptr + batch * q_b + first_col *
                q_d, queries, q_n, q_d, n_queries, d - first_col, D_SLICE)⏎        own_grad_o = _load(grad_o_ptr +
                batch * go_b + first_col * go_d, queries, go_n, go_d, n_queries, d - first_col, D_SLICE)⏎        grad_v
                += tl.dot(p.T.to(grad_o.dtype), own_grad_o, input_precision="ieee")
            grad_k += tl.dot(tl.trans(grad_s).to(q.dtype), q) →
                grad_k += tl.dot(grad_s.T.to(q.dtype), own_q, input_precision="ieee")
            * n_queries * d, grad_q * scale, queries, n_queries, d, D_TILE →
                * n_queries * d + first_col, grad_q * scale, queries, n_queries, d, D_SLICE, d - first_col
            * n_keys * d, grad_k * scale, keys, n_keys, d, D_TILE →
                * n_keys * d + first_col, grad_k * scale, keys, n_keys, d, D_SLICE, d - first_col
            * n_keys * d, grad_v, keys, n_keys, d, D_TILE →
                * n_keys * d + first_col, grad_v, keys, n_keys, d, D_SLICE, d - first_col
            n_rows, d, D_TILE: tl.constexpr):⏎    cols = tl.arange(0, D_TILE)⏎    ptrs = ptr +
                rows.to(tl.int64)[:, None] * d → n_rows, d, D_TILE: tl.constexpr, width):⏎    cols = tl.arange(0,
                D_TILE)⏎    ptrs = ptr + rows.to(tl.int64)[:, None] * d
            x.to(ptr.dtype.element_ty), mask=(rows < n_rows)[:, None] & (cols < d) →
                x.to(ptr.dtype.element_ty), mask=(rows < n_rows)[:, None] & (cols < width)
        """),
    ),
    style(  # base 2, with log₂e folded into scale and lse; what a program keeps is long, what it walks along is short
        "backward_two_kernels_exp2",
        *two_kernels.EDITS,
        *lines("""
            tile = 64 if d_tile <= 32 else 32 if d_tile * q.element_size() <= 512 else 16 →
                long, short = {512: (64, 32), 1024: (32, 16)}.get(d_tile * q.element_size(), (128, 32))
            "Q_TILE": tile, "K_TILE": tile, "D_TILE": d_tile → "D_TILE": d_tile, "num_warps": 8
            (n_queries, tile)](*arguments, grad_q, →
                (n_queries, long)](*arguments, grad_q, Q_TILE=long, K_TILE=short,
            (n_keys, tile)](*arguments, grad_k, grad_v, →
                (n_keys, long)](*arguments, grad_k, grad_v, Q_TILE=short, K_TILE=long,
            s = tl.dot(q, tl.trans(k)) * scale →
                exponent = tl.dot(q, tl.trans(k)) * (scale * LOG2_E) - (lse * LOG2_E)[:, None]
            p = tl.exp(tl.where(visible, s, float("-inf")) - lse[:, None]) →
                p = tl.exp2(tl.where(visible, exponent, float("-inf")))
            grad_q += tl.dot(grad_s.to(k.dtype), k) → grad_q = tl.dot(grad_s.to(k.dtype), k, grad_q)
            grad_v += tl.dot(tl.trans(p).to(grad_o.dtype), grad_o) →
                grad_v = tl.dot(tl.trans(p.to(grad_o.dtype)), grad_o, grad_v)
            grad_k += tl.dot(tl.trans(grad_s).to(q.dtype), q) →
                grad_k = tl.dot(tl.trans(grad_s.to(q.dtype)), q, grad_k)
            def flash → LOG2_E = tl.constexpr(math.log2(math.e))⏎⏎⏎def flash
        """),
    ),
    style(  # block pointers, handed to functions that read and write them
        "backward_block_pointers",
        *two_kernels.EDITS,
        *lines("""
            ptrs = ptr + rows.to(tl.int64)[:, None] * stride_n + cols.to(tl.int64)[None, :] * stride_d⏎    return
                tl.load(ptrs, mask=(rows < n_rows)[:, None] & (cols < d)[None, :], other=0.0) → return
                _read(_block(ptr, n_rows, d, stride_n, stride_d, tl.min(rows, 0), rows.shape[0], D_TILE))
            ptrs = ptr + rows.to(tl.int64)[:, None] * d + cols[None, :]⏎    tl.store(ptrs, x.to(ptr.dtype.element_ty),
                mask=(rows < n_rows)[:, None] & (cols < d)[None, :]) →
                _write(_block(ptr, n_rows, d, d, 1, tl.min(rows, 0), rows.shape[0], D_TILE), x)
        """),
        (
            "@triton.jit\ndef _load(",
            """\
@triton.jit
def _block(ptr, n_rows, d, stride_row, stride_col, first_row, TILE: tl.constexpr, D_TILE: tl.constexpr):
    return tl.make_block_ptr(
        ptr,
        shape=(n_rows, d),
        strides=(stride_row, stride_col),
        offsets=(first_row, 0),
        block_shape=(TILE, D_TILE),
        order=(1, 0),
    )

@triton.jit
def _read(block):
    return tl.load(block, boundary_check=(0, 1), padding_option="zero")

@triton.jit
def _write(block, x):
    tl.store(block, x.to(block.dtype.element_ty.element_ty), boundary_check=(0, 1))

@triton.jit
def _load(""",
        ),
    ),
    style(  # Triton's tutorial: programs of one kernel each make a tile of dk and dv and then a tile of dq, first on
        # the diagonal in steps half as long, then off it; scale and log₂e are one factor, lse is brought to base 2
        "backward_tutorial",
        *put(
            TRITON_BACKWARD="""\
RCP_LN2 = 1.4426950408889634
LN2 = tl.constexpr(0.6931471824645996)
BLK_SLICE_FACTOR = 2

def flash_backward_triton(grad_o, q, k, v, o, lse, is_causal=False):
    _check(grad_o, q, k, v, o, lse)
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    if q.numel() == 0:
        return dq, dk, dv
    q_, k_, v_, do, o_ = (x.reshape(-1, *x.shape[-2:]).contiguous() for x in (q, k, v, grad_o, o))
    batch, n_queries, d = q_.shape
    n_keys = k_.shape[1]
    head_dim = max(16, triton.next_power_of_2(d))
    row_bytes = head_dim * q.element_size()
    block1, block2 = (32, 64) if row_bytes <= 256 else (16, 32)
    pre_block, sm_scale = 64, 1.0 / math.sqrt(d)
    delta = torch.empty((batch, n_queries), dtype=torch.float32, device=q.device)
    _attn_bwd_preprocess[(triton.cdiv(n_queries, pre_block), batch)](
        o_, do, delta, n_queries, d, BLOCK_M=pre_block, HEAD_DIM=head_dim
    )
    grid = (triton.cdiv(max(n_queries, n_keys), block2), 1, batch)
    _attn_bwd[grid](
        q_, k_, v_, sm_scale, sm_scale * RCP_LN2, do, dq, dk, dv, lse.contiguous(), delta, n_queries, n_keys, d,
        BLOCK_M1=block1, BLOCK_N1=block2, BLOCK_M2=block2, BLOCK_N2=block1,
        BLK_SLICE_FACTOR=BLK_SLICE_FACTOR if block1 > 16 else 1, HEAD_DIM=head_dim, CAUSAL=is_causal,
        num_warps=4, num_stages=1,
    )  # fmt: skip
    return dq, dk, dv
""",
            B_KERNELS="""\
@triton.jit
def _offsets(rows, D, HEAD_DIM: tl.constexpr):
    return rows.to(tl.int64)[:, None] * D + tl.arange(0, HEAD_DIM)[None, :]

@triton.jit
def _load(ptr, rows, n, D, HEAD_DIM: tl.constexpr):
    mask = (rows < n)[:, None] & (tl.arange(0, HEAD_DIM) < D)[None, :]
    return tl.load(ptr + _offsets(rows, D, HEAD_DIM), mask=mask, other=0.0)

@triton.jit
def _store(ptr, x, rows, n, D, HEAD_DIM: tl.constexpr):
    mask = (rows < n)[:, None] & (tl.arange(0, HEAD_DIM) < D)[None, :]
    tl.store(ptr + _offsets(rows, D, HEAD_DIM), x.to(ptr.dtype.element_ty), mask=mask)

@triton.jit
def _attn_bwd_preprocess(O, DO, Delta, N, D, BLOCK_M: tl.constexpr, HEAD_DIM: tl.constexpr):  # noqa: E741
    off_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    off_b = tl.program_id(1).to(tl.int64)
    o = _load(O + off_b * N * D, off_m, N, D, HEAD_DIM).to(tl.float32)
    do = _load(DO + off_b * N * D, off_m, N, D, HEAD_DIM).to(tl.float32)
    tl.store(Delta + off_b * N + off_m, tl.sum(o * do, axis=1), mask=off_m < N)

@triton.jit
def _attn_bwd_dkdv(
    dk, dv, Q, k, v, DO, M, Delta, qk_scale, N_QUERIES, D, start_n, start_m, num_steps,
    BLOCK_M1: tl.constexpr, BLOCK_N1: tl.constexpr, HEAD_DIM: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    offs_n = start_n + tl.arange(0, BLOCK_N1)
    tl.static_assert(BLOCK_N1 % BLOCK_M1 == 0)
    curr_m = start_m
    for _ in range(num_steps):
        offs_m = curr_m + tl.arange(0, BLOCK_M1)
        qT = tl.trans(_load(Q, offs_m, N_QUERIES, D, HEAD_DIM))
        m = tl.load(M + offs_m, mask=offs_m < N_QUERIES, other=float("inf")) / LN2
        pT = tl.math.exp2(tl.dot(k, qT) * qk_scale - m[None, :])
        if MASK:
            pT = tl.where(offs_m[None, :] >= offs_n[:, None], pT, 0.0)
        do = _load(DO, offs_m, N_QUERIES, D, HEAD_DIM)
        dv += tl.dot(pT.to(do.dtype), do)
        Di = tl.load(Delta + offs_m, mask=offs_m < N_QUERIES, other=0.0)
        dsT = pT * (tl.dot(v, tl.trans(do)) - Di[None, :])
        dk += tl.dot(dsT.to(k.dtype), tl.trans(qT))
        curr_m += BLOCK_M1
    return dk, dv

@triton.jit
def _attn_bwd_dq(
    dq, q, K, V, do, m, Di, qk_scale, N_KEYS, D, start_m, start_n, num_steps,
    BLOCK_M2: tl.constexpr, BLOCK_N2: tl.constexpr, HEAD_DIM: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    offs_m = start_m + tl.arange(0, BLOCK_M2)
    tl.static_assert(BLOCK_M2 % BLOCK_N2 == 0)
    curr_n = start_n
    for _ in range(num_steps):
        offs_n = curr_n + tl.arange(0, BLOCK_N2)
        k = _load(K, offs_n, N_KEYS, D, HEAD_DIM)
        v = _load(V, offs_n, N_KEYS, D, HEAD_DIM)
        p = tl.math.exp2(tl.dot(q, k.T) * qk_scale - m)
        p = tl.where((offs_n < N_KEYS)[None, :], p, 0.0)
        if MASK:
            p = tl.where(offs_m[:, None] >= offs_n[None, :], p, 0.0)
        ds = (p * (tl.dot(do, v.T).to(tl.float32) - Di[:, None])).to(k.dtype)
        dq += tl.dot(ds, k)
        curr_n += BLOCK_N2
    return dq

@triton.jit
def _attn_bwd(
    Q, K, V, sm_scale, qk_scale, DO, DQ, DK, DV, M, Delta, N_QUERIES, N_KEYS, D,
    BLOCK_M1: tl.constexpr, BLOCK_N1: tl.constexpr, BLOCK_M2: tl.constexpr, BLOCK_N2: tl.constexpr,
    BLK_SLICE_FACTOR: tl.constexpr, HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    bhid, pid = tl.program_id(2).to(tl.int64), tl.program_id(0)
    Q += bhid * N_QUERIES * D
    DO += bhid * N_QUERIES * D
    DQ += bhid * N_QUERIES * D
    K += bhid * N_KEYS * D
    V += bhid * N_KEYS * D
    DK += bhid * N_KEYS * D
    DV += bhid * N_KEYS * D
    M += bhid * N_QUERIES
    Delta += bhid * N_QUERIES

    start_n = pid * BLOCK_N1
    if start_n < N_KEYS:
        offs_n = start_n + tl.arange(0, BLOCK_N1)
        dv = tl.zeros([BLOCK_N1, HEAD_DIM], dtype=tl.float32)
        dk = tl.zeros([BLOCK_N1, HEAD_DIM], dtype=tl.float32)
        k = _load(K, offs_n, N_KEYS, D, HEAD_DIM)
        v = _load(V, offs_n, N_KEYS, D, HEAD_DIM)
        start_m = 0
        if CAUSAL:
            MASK_BLOCK_M1: tl.constexpr = BLOCK_M1 // BLK_SLICE_FACTOR
            num_steps = BLOCK_N1 // MASK_BLOCK_M1
            dk, dv = _attn_bwd_dkdv(
                dk, dv, Q, k, v, DO, M, Delta, qk_scale, N_QUERIES, D, start_n, start_n, num_steps,
                MASK_BLOCK_M1, BLOCK_N1, HEAD_DIM, MASK=True,
            )  # fmt: skip
            start_m = start_n + num_steps * MASK_BLOCK_M1
        dk, dv = _attn_bwd_dkdv(
            dk, dv, Q, k, v, DO, M, Delta, qk_scale, N_QUERIES, D,
            start_n, start_m, tl.cdiv(tl.maximum(N_QUERIES - start_m, 0), BLOCK_M1),
            BLOCK_M1, BLOCK_N1, HEAD_DIM, MASK=False,
        )  # fmt: skip
        _store(DV, dv, offs_n, N_KEYS, D, HEAD_DIM)
        _store(DK, dk * sm_scale, offs_n, N_KEYS, D, HEAD_DIM)

    start_m = pid * BLOCK_M2
    if start_m < N_QUERIES:
        offs_m = start_m + tl.arange(0, BLOCK_M2)
        q = _load(Q, offs_m, N_QUERIES, D, HEAD_DIM)
        do = _load(DO, offs_m, N_QUERIES, D, HEAD_DIM)
        m = tl.load(M + offs_m, mask=offs_m < N_QUERIES, other=float("inf"))[:, None] / LN2
        Di = tl.load(Delta + offs_m, mask=offs_m < N_QUERIES, other=0.0)
        dq = tl.zeros([BLOCK_M2, HEAD_DIM], dtype=tl.float32)
        end_n = N_KEYS
        if CAUSAL:
            MASK_BLOCK_N2: tl.constexpr = BLOCK_N2 // BLK_SLICE_FACTOR
            dq = _attn_bwd_dq(
                dq, q, K, V, do, m, Di, qk_scale, N_KEYS, D, start_m, start_m, BLOCK_M2 // MASK_BLOCK_N2,
                BLOCK_M2, MASK_BLOCK_N2, HEAD_DIM, MASK=True,
            )  # fmt: skip
            end_n = tl.minimum(start_m, N_KEYS)
        dq = _attn_bwd_dq(
            dq, q, K, V, do, m, Di, qk_scale, N_KEYS, D, start_m, 0, tl.cdiv(end_n, BLOCK_N2),
            BLOCK_M2, BLOCK_N2, HEAD_DIM, MASK=False,
        )  # fmt: skip
        _store(DQ, dq * sm_scale, offs_m, N_QUERIES, D, HEAD_DIM)
""",
        ),
    ),
)
