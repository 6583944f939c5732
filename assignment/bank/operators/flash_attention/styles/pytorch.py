"""Right attention in plain PyTorch, in other styles than the base's."""

from assignment.bank.operators.edits import style
from assignment.bank.operators.flash_attention.styles.parts import put

PROBLEMS = ("flash_forward_pytorch", "flash_backward_pytorch")
FILES = ("pytorch_forward.py", "pytorch_backward.py")

STYLES = (
    style(  # einsum, all queries at once against chunks of keys; P and dS are cast to the input's dtype before products
        "pytorch_chunks_of_16_bit_matmul",
        *put(
            PYTORCH_BACKWARD="""\
from .pytorch_forward import _product, _scores

@torch.no_grad()
def flash_backward_pytorch(grad_o, q, k, v, o, lse, is_causal=False):
    _check(grad_o, q, k, v, o, lse)
    scale = q.shape[-1] ** -0.5
    delta = torch.einsum("...qd,...qd->...q", grad_o.float(), o.float())
    grad_q = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
    grad_k, grad_v = k.new_empty(k.shape), v.new_empty(v.shape)
    for start in range(0, k.shape[-2], 64):
        chunk = slice(start, start + 64)
        k_chunk, v_chunk = k[..., chunk, :], v[..., chunk, :]
        p = torch.exp(_scores(q, k_chunk, start, is_causal) - lse.unsqueeze(-1))
        grad_p = _product("...qd,...kd->...qk", grad_o, v_chunk)
        grad_s = (p * (grad_p - delta.unsqueeze(-1))).to(q.dtype)
        grad_q += scale * _product("...qk,...kd->...qd", grad_s, k_chunk)
        grad_k[..., chunk, :] = scale * _product("...qk,...qd->...kd", grad_s, q)
        grad_v[..., chunk, :] = _product("...qk,...qd->...kd", p.to(q.dtype), grad_o)
    return grad_q.to(q.dtype), grad_k, grad_v
""",
            PYTORCH_FORWARD="""\
@torch.no_grad()
def flash_forward_pytorch(q, k, v, is_causal=False):
    _check(q, k, v)
    acc = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
    m = torch.full(q.shape[:-1], float("-inf"), device=q.device)
    l = torch.zeros_like(m)
    for start in range(0, k.shape[-2], 64):
        k_chunk, v_chunk = k[..., start : start + 64, :], v[..., start : start + 64, :]
        s = _scores(q, k_chunk, start, is_causal)
        m_new = torch.maximum(m, s.max(dim=-1).values)
        p = torch.exp(s - m_new.unsqueeze(-1))
        alpha = torch.exp(m - m_new)
        l = alpha * l + p.sum(dim=-1)
        acc = acc * alpha.unsqueeze(-1) + _product("...qk,...kd->...qd", p.to(v.dtype), v_chunk)
        m = m_new
    return (acc / l.unsqueeze(-1)).to(q.dtype), m + torch.log(l)

def _product(equation, a, b):
    return torch.einsum(equation, a.float(), b.float())

def _scores(q, k_chunk, start, is_causal):
    s = _product("...qd,...kd->...qk", q, k_chunk) * q.shape[-1] ** -0.5
    if is_causal:
        q_idx = torch.arange(s.shape[-2], device=s.device).unsqueeze(1)
        k_idx = torch.arange(start, start + s.shape[-1], device=s.device).unsqueeze(0)
        s = torch.where(k_idx <= q_idx, s, float("-inf"))
    return s
""",
        ),
    ),
    style(  # two passes over the keys of a query tile, in float64: the logsumexp first, then the weighted sum
        "pytorch_double",
        *put(
            PYTORCH_FORWARD="""\
@torch.no_grad()
def flash_forward_pytorch(q, k, v, is_causal=False):
    _check(q, k, v)
    o, lse = torch.empty(q.shape, dtype=q.dtype, device=q.device), q.new_empty(q.shape[:-1], dtype=torch.float32)
    for rows in tiles(q.shape[-2]):
        exact_lse = q.new_full((*q.shape[:-2], rows.stop - rows.start), -torch.inf, dtype=torch.float64)
        for cols in tiles(k.shape[-2], is_causal, rows):
            exact_lse = torch.logaddexp(exact_lse, logits(q, k, rows, cols, is_causal).logsumexp(-1))
        acc = torch.zeros_like(q[..., rows, :], dtype=torch.float64)
        for cols in tiles(k.shape[-2], is_causal, rows):
            acc += torch.exp(logits(q, k, rows, cols, is_causal) - exact_lse[..., None]) @ v[..., cols, :].double()
        o[..., rows, :], lse[..., rows] = acc.to(o.dtype), exact_lse.float()
    return o, lse

def tiles(length, is_causal=False, rows=None):
    end = length if rows is None or not is_causal else min(length, rows.stop)
    for start in range(0, end, Q_TILE_SIZE):
        yield slice(start, min(start + Q_TILE_SIZE, length))

def logits(q, k, rows, cols, is_causal):
    s = q[..., rows, :].double() @ k[..., cols, :].double().transpose(-1, -2) / q.shape[-1] ** 0.5
    if is_causal:
        visible = torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).tril(rows.start - cols.start)
        s = s.where(visible, -torch.inf)
    return s
""",
            PYTORCH_BACKWARD="""\
from .pytorch_forward import logits, tiles

@torch.no_grad()
def flash_backward_pytorch(grad_o, q, k, v, o, lse, is_causal=False):
    _check(grad_o, q, k, v, o, lse)
    grad_q, grad_k, grad_v = (torch.zeros(x.shape, dtype=torch.float64, device=x.device) for x in (q, k, v))
    for rows in tiles(q.shape[-2]):
        q_, do = q[..., rows, :].double(), grad_o[..., rows, :].double()
        delta = (do * o[..., rows, :].double()).sum(-1, keepdim=True)
        for cols in tiles(k.shape[-2], is_causal, rows):
            k_, v_ = k[..., cols, :].double(), v[..., cols, :].double()
            p = torch.exp(logits(q, k, rows, cols, is_causal) - lse[..., rows, None].double())
            ds = p * (do @ v_.transpose(-1, -2) - delta) / q.shape[-1] ** 0.5
            grad_q[..., rows, :] += ds @ k_
            grad_k[..., cols, :] += ds.transpose(-1, -2) @ q_
            grad_v[..., cols, :] += p.transpose(-1, -2) @ do
    return grad_q.to(q.dtype), grad_k.to(k.dtype), grad_v.to(v.dtype)
""",
        ),
    ),
    style(  # a NamedTuple is the state of a tile, functools.reduce goes over keys, itertools.product over pairs
        "pytorch_folded",
        *put(
            PYTORCH_FORWARD="""\
import functools
from typing import NamedTuple

class State(NamedTuple):
    o: torch.Tensor
    largest: torch.Tensor
    total: torch.Tensor

    @classmethod
    def begin(cls, q: torch.Tensor) -> "State":
        rows = q.new_full((*q.shape[:-1], 1), -torch.inf, dtype=torch.float32)
        return cls(torch.zeros_like(q, dtype=torch.float32), rows, torch.zeros_like(rows))

    def after(self, s: torch.Tensor, v: torch.Tensor) -> "State":
        largest = torch.maximum(self.largest, s.amax(-1, keepdim=True))
        p, decay = torch.exp(s - largest), torch.exp(self.largest - largest)
        return State(self.o * decay + p @ v, largest, self.total * decay + p.sum(-1, keepdim=True))

    @property
    def results(self):
        return self.o / self.total, (self.largest + self.total.log()).squeeze(-1)

def scorer(q, k, is_causal):
    scale = q.shape[-1] ** -0.5

    def scores(rows: slice, cols: slice):
        s = q[..., rows, :].float() @ k[..., cols, :].float().mT * scale
        if not is_causal or cols.stop <= rows.start + 1:
            return s
        queries, keys = (torch.arange(t.start, t.stop, device=q.device) for t in (rows, cols))
        return s.masked_fill(keys[None, :] > queries[:, None], -torch.inf)

    return scores

def tiles(length, until=None):
    end = length if until is None else min(length, until)
    return (slice(start, min(start + Q_TILE_SIZE, length)) for start in range(0, end, Q_TILE_SIZE))

def flash_forward_pytorch(q, k, v, is_causal=False):
    _check(q, k, v)
    scores = scorer(q, k, is_causal)

    def of(rows):
        cols = tiles(k.shape[-2], rows.stop if is_causal else None)
        step = lambda state, c: state.after(scores(rows, c), v[..., c, :].float())
        return functools.reduce(step, cols, State.begin(q[..., rows, :])).results

    o, lse = zip(*map(of, tiles(q.shape[-2])), strict=True)
    return torch.cat(o, dim=-2).to(q.dtype), torch.cat(lse, dim=-1)
""",
            PYTORCH_BACKWARD="""\
import itertools

from .pytorch_forward import scorer, tiles

def flash_backward_pytorch(grad_o, q, k, v, o, lse, is_causal=False):
    _check(grad_o, q, k, v, o, lse)
    scores, scale = scorer(q, k, is_causal), q.shape[-1] ** -0.5
    do, delta = grad_o.float(), torch.linalg.vecdot(grad_o.float(), o.float()).unsqueeze(-1)
    grads = tuple(torch.zeros(x.shape, dtype=torch.float32, device=x.device) for x in (q, k, v))
    for rows, cols in itertools.product(tiles(q.shape[-2]), tiles(k.shape[-2])):
        if is_causal and cols.start >= rows.stop:
            continue
        p = torch.exp(scores(rows, cols) - lse[..., rows, None])
        ds = (p * (do[..., rows, :] @ v[..., cols, :].float().mT - delta[..., rows, :])).mul_(scale)
        places, lefts = (rows, cols, cols), (ds, ds.mT, p.mT)
        rights = (k[..., cols, :], q[..., rows, :], do[..., rows, :])
        for grad, where, left, right in zip(grads, places, lefts, rights, strict=True):
            grad[..., where, :] += left @ right.float()
    return grads[0].to(q.dtype), grads[1].to(k.dtype), grads[2].to(v.dtype)
""",
        ),
    ),
    style(  # as little new memory as possible: masks narrowed by &=, statistics and sums changed in place, over lists
        # at once, or through out=
        "pytorch_in_place",
        *put(
            PYTORCH_FORWARD="""\
@torch.no_grad()
def flash_forward_pytorch(q, k, v, is_causal=False):
    _check(q, k, v)
    o, lse = torch.empty(q.shape, dtype=q.dtype, device=q.device), q.new_empty(q.shape[:-1], dtype=torch.float32)
    for i in range(0, q.shape[-2], Q_TILE_SIZE):
        q_tile = q[..., i : i + Q_TILE_SIZE, :].float() / math.sqrt(q.shape[-1])
        largest = q_tile.new_full((*q_tile.shape[:-1], 1), -math.inf)
        total, weighted = torch.zeros_like(largest), torch.zeros_like(q_tile)
        for j in range(0, k.shape[-2], Q_TILE_SIZE):
            s = q_tile @ k[..., j : j + Q_TILE_SIZE, :].float().mT
            s[..., ~seen_keys(i, j, s, is_causal)] = -math.inf
            before = largest.clone()
            torch.maximum(largest, s.amax(-1, keepdim=True), out=largest)
            torch._foreach_mul_([total, weighted], torch._foreach_exp([before.sub_(largest)]) * 2)
            s.sub_(largest).exp_()
            v_tile = v[..., j : j + Q_TILE_SIZE, :].float()
            torch._foreach_add_([total, weighted], [s.sum(-1, keepdim=True), s @ v_tile])
        torch._foreach_copy_([o[..., i : i + Q_TILE_SIZE, :]], [weighted.div_(total)])
        torch.add(largest, total.log_(), out=largest)
        lse[..., i : i + Q_TILE_SIZE].copy_(largest.squeeze(-1))
    return o, lse

def seen_keys(i, j, s, is_causal):
    seen = torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device)
    if is_causal:
        rows = torch.arange(i, i + s.shape[-2], device=s.device)
        cols = torch.arange(j, j + s.shape[-1], device=s.device)
        seen &= cols <= rows[:, None]
        seen.logical_and_(cols >= 0)
    return seen
""",
            PYTORCH_BACKWARD="""\
from .pytorch_forward import seen_keys

@torch.no_grad()
def flash_backward_pytorch(grad_o, q, k, v, o, lse, is_causal=False):
    _check(grad_o, q, k, v, o, lse)
    scale = 1 / math.sqrt(q.shape[-1])
    delta = (grad_o.float() * o).sum(-1, keepdim=True)
    grads = [torch.empty(x.shape, dtype=torch.float32, device=x.device) for x in (q, k, v)]
    torch._foreach_zero_(grads)
    for i in range(0, q.shape[-2], Q_TILE_SIZE):
        rows = slice(i, i + Q_TILE_SIZE)
        q_tile, grad_o_tile = q[..., rows, :].float(), grad_o[..., rows, :].float()
        for j in range(0, k.shape[-2], Q_TILE_SIZE):
            columns = slice(j, j + Q_TILE_SIZE)
            k_tile, v_tile = k[..., columns, :].float(), v[..., columns, :].float()
            p = (q_tile @ k_tile.mT).mul_(scale).sub_(lse[..., rows, None]).exp_()
            p *= seen_keys(i, j, p, is_causal)
            grad_s = (grad_o_tile @ v_tile.mT).sub_(delta[..., rows, :]).mul_(p).mul_(scale)
            tiles = [grads[0][..., rows, :], grads[1][..., columns, :], grads[2][..., columns, :]]
            torch._foreach_add_(tiles, [grad_s @ k_tile, grad_s.mT @ q_tile, p.mT @ grad_o_tile])
    return grads[0].to(q.dtype), grads[1].to(k.dtype), grads[2].to(v.dtype)
""",
        ),
    ),
    style(  # tiles of 128 queries and 32 keys from `split`, put together by `cat`; einops; a class keeps the softmax
        "pytorch_online",
        *put(
            PYTORCH_FORWARD="""\
from einops import rearrange

@torch.no_grad()
def flash_forward_pytorch(q, k, v, is_causal=False):
    _check(q, k, v)
    keys_and_values = list(zip(batched(k).split(32, 1), batched(v).split(32, 1), strict=True))
    o_tiles, lse_tiles = [], []
    for i, q_tile in enumerate(batched(q).split(128, 1)):
        state = OnlineSoftmax(q_tile)
        for j, (k_tile, v_tile) in enumerate(keys_and_values):
            hidden = hidden_keys(i, j, q_tile, k_tile) if is_causal else None
            state.add(scores(q_tile, k_tile, hidden), v_tile)
        o_tiles.append(state.output())
        lse_tiles.append(state.logsumexp())
    return torch.cat(o_tiles, 1).to(q.dtype).reshape(q.shape), torch.cat(lse_tiles, 1).reshape(q.shape[:-1])

class OnlineSoftmax:
    def __init__(self, q_tile):
        self.largest = q_tile.new_full((*q_tile.shape[:2], 1), -math.inf, dtype=torch.float32)
        self.total = torch.zeros_like(self.largest)
        self.weighted = torch.zeros_like(q_tile, dtype=torch.float32)

    def add(self, s, v_tile):
        largest = self.largest.maximum(s.amax(-1, keepdim=True))
        p, decay = torch.exp(s - largest), torch.exp(self.largest - largest)
        self.total = self.total * decay + p.sum(-1, keepdim=True)
        self.weighted = self.weighted * decay + p @ v_tile.float()
        self.largest = largest

    def output(self):
        return self.weighted / self.total

    def logsumexp(self):
        return (self.largest + self.total.log()).squeeze(-1)

def batched(x):
    return rearrange(x, "... n d -> (...) n d")

def scores(q_tile, k_tile, hidden):
    s = q_tile.float() @ k_tile.float().mT / math.sqrt(q_tile.shape[-1])
    return s if hidden is None else s.masked_fill(hidden, -math.inf)

def hidden_keys(i, j, q_tile, k_tile):
    queries = torch.arange(q_tile.shape[1], device=q_tile.device) + i * 128
    keys = torch.arange(k_tile.shape[1], device=q_tile.device) + j * 32
    return keys[None, :] > queries[:, None]
""",
            PYTORCH_BACKWARD="""\
from einops import rearrange

from .pytorch_forward import batched, hidden_keys, scores

@torch.no_grad()
def flash_backward_pytorch(grad_o, q, k, v, o, lse, is_causal=False):
    _check(grad_o, q, k, v, o, lse)
    scale = 1 / math.sqrt(q.shape[-1])
    delta = rearrange((grad_o.float() * o.float()).sum(-1, keepdim=True), "... n one -> (...) n one")
    lse = rearrange(lse, "... n -> (...) n 1")
    query_tiles = [x.split(128, 1) for x in (batched(q), batched(grad_o), lse, delta)]
    grad_q = [torch.zeros_like(tile, dtype=torch.float32) for tile in query_tiles[0]]
    grad_k, grad_v = [], []
    for j, (k_tile, v_tile) in enumerate(
        zip(batched(k).split(32, 1), batched(v).split(32, 1), strict=True)
    ):
        grad_k_tile, grad_v_tile = (torch.zeros_like(x, dtype=torch.float32) for x in (k_tile, v_tile))
        for i, (q_tile, grad_o_tile, lse_tile, delta_tile) in enumerate(zip(*query_tiles, strict=True)):
            hidden = hidden_keys(i, j, q_tile, k_tile) if is_causal else None
            p = torch.exp(scores(q_tile, k_tile, hidden) - lse_tile)
            grad_p = grad_o_tile.float() @ v_tile.float().mT
            grad_s = p * (grad_p - delta_tile)
            grad_q[i] += grad_s @ k_tile.float() * scale
            grad_k_tile += grad_s.mT @ q_tile.float() * scale
            grad_v_tile += p.mT @ grad_o_tile.float()
        grad_k.append(grad_k_tile)
        grad_v.append(grad_v_tile)
    together = ((grad_q, q), (grad_k, k), (grad_v, v))
    grads = [torch.cat(tiles, 1).to(x.dtype).reshape(x.shape) for tiles, x in together]
    return grads[0], grads[1], grads[2]
""",
        ),
    ),
)
