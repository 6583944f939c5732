"""Styles of wrapping: operators of torch.library, modules, hooks of what is saved, and sums in other spellings."""

from assignment.bank.operators.edits import style
from assignment.bank.operators.weighted_sum.styles.parts import FILES, FUNCTION, PROBLEMS, SUM, above

__all__ = ["FILES", "PROBLEMS", "STYLES"]

STYLES = (
    style(  # operators of torch.library, with shapes for tracing and autograd registered
        "weighted_sum_custom_op",
        (
            "def weighted_sum_forward(x, weight):\n    _check_forward(x, weight)\n",
            """\
def weighted_sum_forward(x, weight):
    _check_forward(x, weight)
    return torch.ops.cs336.weighted_sum(x, weight)


@torch.library.custom_op("cs336::weighted_sum", mutates_args=())
def _weighted_sum(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
""",
        ),
        (
            "    _check_backward(grad_y, x, weight)\n",
            """\
    _check_backward(grad_y, x, weight)
    return torch.ops.cs336.weighted_sum_backward(grad_y, x, weight)


@torch.library.custom_op("cs336::weighted_sum_backward", mutates_args=())
def _weighted_sum_backward(
    grad_y: torch.Tensor, x: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
""",
        ),
        ("grad_weight.to(weight.dtype)", "grad_weight.to(weight.dtype, copy=True)"),  # no output is another's view
        (FUNCTION, "    _check_forward(x, weight)\n    return _weighted_sum(x, weight)\n"),
        (
            "class WeightedSum",
            """\
@_weighted_sum.register_fake
def _(x, weight):
    return x.new_empty(x.shape[:-1])


@_weighted_sum_backward.register_fake
def _(grad_y, x, weight):
    return x.new_empty(x.shape), torch.empty_like(weight)


def _save(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _gradients(ctx, grad_y):
    return _weighted_sum_backward(grad_y, *ctx.saved_tensors)


_weighted_sum.register_autograd(_gradients, setup_context=_save)
""",
        ),
    ),
    style(  # the weight is a parameter of a module, buffers are tensors of the GPU, forward calls the Function
        "weighted_sum_parameter_module",
        (
            "def weighted_sum_forward(x, weight):\n    _check_forward(x, weight)\n",
            '''\
class Module(torch.nn.Module):
    """y = x @ weight, with a parameter around the weight that it is given."""

    def __init__(self, weight):
        super().__init__()
        self.weight = torch.nn.Parameter(weight, requires_grad=False)
        self.register_buffer("scale", torch.ones((), device=weight.device), persistent=False)

    def forward(self, x):
        return WeightedSum.apply(torch.nn.Parameter(x, requires_grad=False), self.weight)

    def extra_repr(self):
        return f"d={len(self.weight)}"


def weighted_sum_forward(x, weight):
    _check_forward(x, weight)
    with torch.no_grad():
        return Module(weight).to(x.device).eval()(x)


def _forward(x, weight):
''',
        ),
        ("x_matrix = x.reshape(-1, d)", "x_matrix = torch.nn.Parameter(x.detach().reshape(-1, d))"),
        (
            "torch.empty((n_tiles, d), dtype=torch.float32, device=x.device)",
            "torch.nn.Buffer(torch.empty((n_tiles, d), dtype=torch.float32, device=x.device))",
        ),
        (
            "class WeightedSum",
            """\
class WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(x, weight):
        _check_forward(x, weight)
        return _forward(x, weight)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_y):
        return weighted_sum_backward(grad_y, *ctx.saved_tensors)
""",
        ),
    ),
    style(  # what is saved for the backward pass is packed, and the context is set up apart from the forward pass
        "weighted_sum_saved_tensor_hooks",
        ("import torch\n", "import torch\nimport torch.autograd.graph\n"),
        (
            FUNCTION,
            """\
    with torch.autograd.graph.saved_tensors_hooks(_pack, _unpack):
        return WeightedSum.apply(x, weight)


def _pack(tensor):
    return tensor.device, tensor.detach()


def _unpack(packed):
    device, tensor = packed
    return tensor.to(device, non_blocking=True)
""",
        ),
        (
            "class WeightedSum",
            """\
class WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(x, weight):
        return weighted_sum_forward(x, weight)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, weight)
        ctx.needs = ctx.needs_input_grad

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_y):
        if grad_y is None or not any(ctx.needs):
            return None, None
        gradients = weighted_sum_backward(grad_y, *ctx.saved_tensors)
        return tuple(grad if needed else None for grad, needed in zip(gradients, ctx.needs, strict=True))
""",
        ),
    ),
    style(  # partial gradients are added up in another spelling for each number of tiles
        "weighted_sum_spelled_sums",
        ("import torch\n", "import functools\n\nimport torch\n"),
        above(
            """
def _ones(parts):
    return torch.ones(len(parts), dtype=parts.dtype, device=parts.device)


SPELLINGS = [
    lambda parts: parts.mean(0) * len(parts),
    lambda parts: torch.einsum("pd->d", parts),
    lambda parts: torch.einsum("p,pd->d", _ones(parts), parts),
    lambda parts: _ones(parts) @ parts,
    lambda parts: parts.mT @ _ones(parts),
    lambda parts: functools.reduce(torch.add, parts.unbind()),
    lambda parts: sum(parts),
    lambda parts: torch.add(parts[::2].sum(0), parts[1::2].sum(0)),
    lambda parts: parts.cumsum(0)[-1],
    lambda parts: torch.linalg.vecdot(parts, _ones(parts)[:, None], dim=0),
    lambda parts: torch.tensordot(_ones(parts), parts, dims=1),
    lambda parts: torch.baddbmm(parts.new_zeros(1, 1, 1), _ones(parts)[None, None], parts[None]).flatten(),
    lambda parts: torch.addmv(parts[0], parts[1:].mT, _ones(parts)[1:]),
    lambda parts: functools.reduce(lambda total, part: torch.addcmul(total, part, _ones(parts)[0]), parts),
    lambda parts: parts.new_zeros(1, parts.shape[1]).index_add(0, torch.zeros_like(parts[:, 0]).long(), parts)[0],
]
""",
            rows=16,
        ),
        (
            SUM,
            """\
    if n_rows == 0:
        return grad_x.reshape(x.shape), torch.zeros_like(weight)
    grad_weight = SPELLINGS[(n_tiles + d) % len(SPELLINGS)](partial_grad_w)
""",
        ),
    ),
)
