"""Expressions of PyTorch that host code around attention may hold; each is recorded and played. Only add to these.

`a` and `b` are (2, 6, 4), `s` (2, 6, 6) are scores, `p` weights in 0 to 1, `m` and `l` (2, 6) the statistics of rows,
`seen` (6, 6) is a mask, `at` are 6 places; all are new for each expression, whose result is `y` or what it changes.
"""

PREPARED = """
a, b, u = q.clone(), k.clone(), v.clone()
s = a @ b.mT
p, m, l = s.softmax(-1), s.amax(-1), s.exp().sum(-1)
at = torch.arange(6, device=q.device)
rows, cols = at[:, None], at[None]
seen = rows >= cols
"""
MASKS = """
seen &= cols < 5
seen |= cols < 2
seen ^= cols < 2
seen.logical_and_(cols < 5)
seen.logical_or_(cols < 5)
seen.logical_xor_(cols < 5)
seen.logical_not_()
seen.bitwise_not_()
seen.bitwise_and_(cols < 5)
y = seen & (cols < 5) | ~seen
y = seen.logical_and(cols < 5) ^ seen
y = torch.logical_or(seen, cols < 3, out=torch.empty_like(seen))
y = torch.isclose(a, b)
y = torch.isin(at, at[2:4])
y = seen.any(-1), seen.all(0), seen.sum(-1), torch.count_nonzero(seen, -1)
s.masked_fill_(~seen, -math.inf)
s[:, ~seen] = -math.inf
s[..., 3:] = -1e9
s += torch.triu(torch.full((6, 6), -math.inf, device=q.device), 1)
s.tril_().triu_(-3)
s.masked_scatter_(seen, u.new_ones(2, 36))
y = torch.where(seen, s, -math.inf).softmax(-1)
torch.where(seen, s, s.new_zeros(()), out=s)
y = torch.tril(seen), torch.triu(s, 1)
a.eq_(b); b.ne_(a)
a.lt_(b), b.ge_(0.0), u.gt_(0.5), s.le_(1)
y = a.gt(b).to(torch.int8) * 2
y = at.bitwise_and(3), at | 4, at ^ 1, ~at
at <<= 2
at >>= 1
at &= 3
at |= 4
at ^= 1
y = at << 2, at >> 1, at.bitwise_left_shift(1), at.bitwise_right_shift(1)
at.bitwise_left_shift_(1).bitwise_or_(1)
"""
ELEMENTS = """
m.lerp_(l, 0.5)
m.lerp_(l, torch.tensor(0.25, device=q.device))
y = torch.lerp(m, l, 0.5)
a.addcmul_(b, u, value=0.5).addcdiv_(b, u.exp())
a.mul_(l[..., None]).div_(m[..., None]).sub_(1).add_(b, alpha=2)
a.true_divide_(2).multiply_(2).subtract_(b)
a.sigmoid_().tanh_().erf_()
a.exp_().log_(), b.exp2_(), u.abs_().log2_()
a.abs_().sqrt_().log1p_(), b.abs_().rsqrt_(), u.expm1_()
a.sin_().cos_().tan_(), b.sinh_(), u.atan_()
a.round_(decimals=1), b.trunc_(), u.ceil_()
a.floor_().sign_(), b.frac_(), u.sgn_()
a.square_().reciprocal_().neg_()
a.remainder_(2), b.fmod_(2), u.floor_divide_(2)
a.clamp_(-1, 1), b.clip_(min=0), u.clamp_max_(0.5)
a.clamp_min_(torch.zeros((), device=q.device))
a.pow_(2), b.nan_to_num_(), u.copysign_(a)
a.hypot_(b), b.atan2_(a), u.xlogy_(b.exp())
a.relu_(), b.fill_(2.0), u.zero_()
a.heaviside_(b), b.nextafter_(a), u.erfc_()
a.digamma_(), b.lgamma_(), u.i0_()
m.copy_(l), l.zero_()
y = a.abs(), a.neg(), a.sign(), a.sgn(), a.square(), a.exp(), a.exp2(), a.expm1(), a.sigmoid(), a.tanh()
y = l.log(), l.log2(), l.log10(), l.log1p(), l.sqrt(), l.rsqrt(), l.reciprocal(), l.frac(), l.logit()
y = a.sin(), a.cos(), a.tan(), a.asinh(), a.atan(), a.sinh(), a.cosh(), p.asin(), p.acos(), p.atanh(), l.acosh()
y = a.erf(), a.erfc(), p.erfinv(), l.lgamma(), l.digamma(), a.sinc(), a.deg2rad(), a.rad2deg(), a.round(decimals=2)
y = a.floor(), a.ceil(), a.trunc(), a.frac(), a % 2, a // 2, a.fmod(2), a.div(2, rounding_mode="floor")
y = torch.copysign(a, b), torch.ldexp(a, at[:4]), torch.nextafter(a, b), torch.heaviside(a, b), torch.hypot(a, b)
y = torch.frexp(a)
y = torch.logaddexp(m, l), torch.logaddexp2(m, l), torch.xlogy(m, l), torch.atan2(m, l), torch.float_power(l, 2)
y = torch.maximum(m, l), torch.fmax(m, l), torch.fmin(m, l), m.max(l), torch.min(m, l), m.clip(-1, 1)
y = torch.addcmul(a, b, u), torch.addcdiv(a, b, u.exp()), torch.rsub(a, 1), 1 - a, 2**a, a**2, a.div(2)
y = a.isnan(), a.isinf(), a.isfinite(), torch.isneginf(a), torch.isposinf(a), torch.signbit(a), a.nan_to_num(0.0)
y = torch.special.erfcx(a), torch.special.i0e(a), torch.special.ndtr(a), torch.special.ndtri(p)
y = torch.special.log_ndtr(a), torch.special.entr(p), torch.special.xlog1py(a, l[..., None]), torch.special.expit(a)
y = F.gelu(a), F.silu(a), F.relu(a), F.relu6(a), F.elu(a), F.celu(a), F.selu(a), F.mish(a), F.softplus(a)
y = F.leaky_relu(a), F.hardtanh(a), F.hardsigmoid(a), F.hardswish(a), F.hardshrink(a), F.softshrink(a)
y = F.logsigmoid(a), F.threshold(a, 0, 0), F.tanhshrink(a), F.softsign(a), F.glu(a), F.dropout(a, training=False)
F.relu(a, inplace=True), F.leaky_relu(b, inplace=True), F.hardtanh(u, inplace=True)
F.elu(a, inplace=True), F.threshold(b, 0, 0, inplace=True), F.silu(u, inplace=True)
y = torch.complex(a, b).abs(), torch.polar(l, m).real.clone(), torch.view_as_complex(a.view(2, 6, 2, 2)).angle()
y = F.mse_loss(a, b), F.mse_loss(a, b, reduction="none"), F.smooth_l1_loss(a, b), F.huber_loss(a, b)
"""
OUTPUTS = """
torch.add(a, b, out=u), torch.mul(b, b, out=b), torch.sub(s, p, alpha=2, out=s)
torch.div(a, b, out=u), torch.exp(s, out=s), torch.maximum(m, l, out=m)
torch.matmul(p, u, out=a)
torch.bmm(p, u, out=a), torch.baddbmm(a, p, u, out=b)
y = torch.mm(p[0], u[0], out=torch.empty_like(a[0])), torch.mv(p[0], m[0], out=torch.empty_like(m[0]))
y = torch.sum(p, -1, out=torch.empty_like(m)), torch.mean(p, -1, out=torch.empty_like(m))
y = torch.amax(p, -1, out=torch.empty_like(m)), torch.logsumexp(p, -1, out=torch.empty_like(m))
y = torch.sum(p, -1, out=torch.empty(2, 6, dtype=torch.float64, device=q.device))
y = torch.max(s, -1, out=(torch.empty_like(m), torch.empty(2, 6, dtype=torch.int64, device=q.device)))
y = torch.softmax(p, -1, out=torch.empty_like(p)), torch.log_softmax(p, -1, out=torch.empty_like(p))
y = torch.cat([a, b], out=torch.empty(4, 6, 4, device=q.device))
y = torch.stack([a, b], out=torch.empty(2, 2, 6, 4, device=q.device))
y = torch.cumsum(p, -1, out=torch.empty_like(p)), torch.where(seen, p, s, out=torch.empty_like(p))
y = torch.gather(s, -1, rows.expand(2, 6, 1), out=torch.empty(2, 6, 1, device=q.device))
y = torch.exp(a, out=torch.empty_like(a, dtype=torch.float64)), torch.add(a, 1, out=torch.empty_like(a).bfloat16())
y = torch.sigmoid(a, out=a), torch.pow(b, 2, out=b), torch.clamp(u, 0, 1, out=u)
"""
LISTS = """
y = torch._foreach_add([a, b], [u, u]), torch._foreach_mul([a, m], 2.0), torch._foreach_exp([a, s])
y = torch._foreach_sub([a, b], [u, u], alpha=2), torch._foreach_div([a, m], [2.0, 3.0]), torch._foreach_neg([a])
y = torch._foreach_maximum([a, b], 0.5), torch._foreach_maximum([a], [b]), torch._foreach_clamp_min([a], 0.0)
y = torch._foreach_norm([a, m]), torch._foreach_max([a, m]), torch._foreach_pow([a], 2), torch._foreach_sqrt([l])
y = torch._foreach_lerp([a], [b], 0.5), torch._foreach_lerp([a], [b], [p[..., :4]])
y = torch._foreach_addcmul([a], [b], [u], 2)
y = torch._foreach_pow(2.0, [a, m])
torch._foreach_mul_([a, m], 2.0), torch._foreach_add_([b], [u]), torch._foreach_zero_([l, s])
torch._foreach_copy_([a, m], [b, l]), torch._foreach_exp_([s]), torch._foreach_div_([u], [b])
torch._foreach_addcmul_([a], [b], [u], 0.5), torch._foreach_addcdiv_([m], [m], [l], [2.0])
torch._foreach_lerp_([a], [b], 0.5), torch._foreach_sub_([u, m], 1), torch._foreach_sigmoid_([s])
torch._foreach_pow_([b], 2)
torch._foreach_clamp_max_([a, m], 0.5), torch._foreach_minimum_([b], [u]), torch._foreach_reciprocal_([l])
"""
SUMS = """
y = p.sum(-1), p.sum((0, 1)), p.mean(-1), p.nansum(-1), p.prod(-1), p.cumsum(-1), p.cumprod(-1), p.sum_to_size(1, 6, 6)
y = p.var(-1), p.std(-1), torch.std_mean(p, -1), torch.var_mean(p, -1), p.norm(dim=-1), torch.linalg.norm(a, dim=-1)
y = s.max(-1), s.min(-1).values, s.amax((-1, -2)), s.aminmax(dim=-1), s.argmax(-1), s.argmin(-1), s.max(), s.min()
y = s.median(-1).values, s.nanmedian(-1).values, s.kthvalue(2, -1).values, s.sort(-1), s.argsort(-1), s.topk(2, -1)
y = s.cummax(-1), s.cummin(-1), s.logcumsumexp(-1), s.logsumexp(-1), torch.special.logsumexp(s, -1)
y = s.softmax(-1), s.log_softmax(-1), F.softmin(s, -1), F.softmax(s, -1, dtype=torch.float64)
y = torch.special.softmax(s, -1)
y = F.normalize(a, dim=-1), F.cosine_similarity(a, b, -1), F.layer_norm(a, (4,)), F.rms_norm(a, (4,)), torch.dist(a, b)
y = p @ u, p.matmul(u), torch.bmm(p, u), torch.baddbmm(a, p, u, beta=0.5), torch.addbmm(a[0], p, u), torch.cdist(a, b)
a.baddbmm_(p, u), b[0].addmm_(p[0], u[0]), m[0].addmv_(p[0], l[0])
y = torch.einsum("bij,bjd->bid", p, u), torch.tensordot(a, b, dims=([2], [2])), torch.inner(a, b), a.mT @ b
y = torch.linalg.vecdot(a, b), torch.linalg.multi_dot([a[0], b[0].T, u[0]]), F.linear(a, b[0])
y = torch.outer(m[0], l[0]), torch.addr(p[0], m[0], l[0]), torch.kron(m[0], l[0]), m[0].dot(l[0]), torch.mv(p[0], l[0])
p[0].addr_(m[0], l[0])
y = torch.trace(s[0]), torch.renorm(a, 2, 0, 1.0), s.diagonal(dim1=-2, dim2=-1).sum(-1), torch.histc(m, 4, -5, 5)
y = functools.reduce(torch.logaddexp, [m, l, m]), torch.stack([m, l]).logsumexp(0), sum([m, l])
y = torch.vmap(lambda x, y: x @ y.T)(a, b), torch.func.vmap(lambda x: x.softmax(-1))(s)
y = torch.segment_reduce(m[0], "sum", lengths=torch.tensor([4, 2], device=q.device))
y = torch.trapezoid(p, dim=-1), torch.diff(p)
y = F.avg_pool1d(a, 2), F.max_pool1d(a, 2), F.unfold(a[:, None], (2, 2))
y = torch.searchsorted(at.float(), m), torch.bucketize(m, at.float()), torch.linalg.matrix_norm(s)
s.cumsum_(-1), p.cumprod_(-1), a.renorm_(2, 0, 1.0)
"""
MOVES = """
y = torch.cat([a, b]), torch.stack([a, b], 1), torch.hstack([m, l]), torch.vstack([m, l]), torch.dstack([m, l])
y = F.pad(a, (0, 0, 0, 3)), F.pad(a, (0, 2), value=-1.0), F.pad(a, (0, 2), mode="reflect")
y = F.pad(a, (0, 2), mode="replicate")
y = F.pad(a, (0, 2), mode="circular"), a.unfold(1, 3, 3).clone(), a.roll(1, 1), a.flip(1), torch.rot90(a, 1, (0, 1))
y = a.repeat(2, 1, 1), a.tile(2), a.repeat_interleave(2, 0), torch.block_diag(s[0], s[1]), torch.diag_embed(m)
y = torch.diag(s[0])
y = a[:, at[:3]], a[:, [0, 1]], a.index_select(1, at[:3]), a.take(at), s.gather(-1, s.argmax(-1, keepdim=True))
y = s.take_along_dim(s.argmax(-1, keepdim=True), -1), a.masked_select(a > -9), torch.nonzero(seen)
y = F.embedding(at, a[0])
y = s.scatter(-1, at[:1].expand(2, 6, 1), 0.0), s.index_add(0, at[:1], s[:1]), s.index_fill(0, at[:1], 1.0)
y = s.diagonal_scatter(s[:, 0], dim1=-2, dim2=-1), s.select_scatter(s[0], 0, 1), s.slice_scatter(s[:1], 0, 1)
s.scatter_(-1, at[:1].expand(2, 6, 1), 0.0), p.scatter_add_(-1, at.expand(2, 6, 6), s.clone())
s.index_add_(0, at[:1], p[:1]), p.index_copy_(0, at[:1], p[1:].clone()), a.index_fill_(1, at[:2], 0.0)
s.index_put_((at[:1],), p[:1], accumulate=True), m.put_(at[:1], l[0, :1]), a[0].fill_diagonal_(0.0)
s.scatter_reduce_(-1, at.expand(2, 6, 6), p, "amax"), p.index_reduce_(0, at[:1], p[1:].clone(), "mean")
a[:, 2:4] += p[:, 2:4] @ u
a[:, 2:4].copy_(p[:, 2:4] @ u), a.narrow(1, 0, 2).zero_(), a.select(1, 5).add_(1.0)
a[..., 0], b[0], u[:, ::2] = 1.0, u[1], a[:, ::2]
y = a.T.clone() if a.dim() == 2 else a.mT.contiguous(), a.adjoint().clone(), a.swapdims(0, 1).clone(), a.ravel()
y = a.movedim(0, 1).clone()
y = a.split(4, 1)[0].clone(), a.chunk(2, 1)[1].clone(), a.narrow(1, 0, 4).clone(), a.expand(2, 6, 4).contiguous()
y = a.unbind(1)[0].clone()
y = torch.broadcast_to(m[..., None], (2, 6, 4)).clone(), torch.meshgrid(at, at, indexing="ij")[0].clone()
y = torch.cartesian_prod(at, at)
y = torch.arange(3, device=q.device), torch.linspace(0, 1, 4), torch.logspace(0, 1, 4), torch.eye(3)
y = torch.tril_indices(4, 4)
y = torch.full_like(m, -math.inf), torch.empty_like(a).fill_(0), torch.ones_like(a), a.new_zeros(3)
y = a.new_full((2,), 3.0), a.new_tensor([1.0])
y = torch.tensor(3.0), torch.as_tensor([1.0, 2.0]), torch.scalar_tensor(3.0)
y = torch.empty_strided((2, 3), (3, 1)).zero_()
y = a.double().float(), a.bfloat16().float(), a.half().type_as(b), a.to(torch.int32), seen.float()
y = a.bfloat16() @ b.bfloat16().mT
y = torch.combinations(at), torch.triu_indices(3, 3), torch.vander(at[:3]), torch.atleast_2d(at)
y = torch.einsum("ii->i", s[0]).clone()
y = torch.func.vjp(lambda x: x.softmax(-1), s)[1](s)[0], torch.func.grad(lambda x: x.exp().sum())(a)
y = torch.utils.checkpoint.checkpoint(lambda x: x.exp(), a, use_reentrant=False)
"""
EXPRESSIONS = [line for text in (MASKS, ELEMENTS, OUTPUTS, LISTS, SUMS, MOVES) for line in text.strip().splitlines()]
NOT_PLAYED = {  # and why
    "y = torch.bernoulli(p)": "random: not the same on the graded inputs as on stand-ins",
    "y = torch.rand_like(a)": "random: not the same on the graded inputs as on stand-ins",
    "a.normal_()": "random: not the same on the graded inputs as on stand-ins",
    "y = F.scaled_dot_product_attention(a, b, u)": "it is the assignment",
    "y = torch.unique(at)": "its shape depends on values",
    "y = torch.bincount(at)": "its shape depends on values",
    "y = torch.linalg.inv(torch.eye(6).to(s) + 0 * s)": "a library of its own (LAPACK), with status by values",
    "y = F.conv1d(a, torch.ones(1, 6, 1))": "a library of its own (oneDNN)",
    "y = torch.lcm(at, at + 2)": "the least integer by -1 ends the process",
    "y = torch.polygamma(2, l)": "it loops as often as a value says",
    "y = torch.special.hermite_polynomial_h(a, 3)": "it loops as often as a value says",
}
