"""What PyTorch's own tools say of registered operators: opcheck, and a transformer block under torch.compile.

The grader runs this file's text where the submission is imported; `advice` returns what is told.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

STEPS, WIDTH, HEADS, BATCH, TOKENS = 3, 32, 2, 2, 32
FAR = 1e-2  # of a loss: products may be TF32
OPERATORS = {  # name, shapes of its tensors, what comes after them
    "rmsnorm": ([(4, 16), (16,)], ()),
    "flash_attention": ([(2, 8, 16)] * 3, (True,)),
}


class Block(nn.Module):
    """Attention and a gated layer, a norm before each."""

    def __init__(self, norm, attention):
        super().__init__()
        self.norm, self.attention = norm, attention
        rng = torch.Generator().manual_seed(0)

        def weight(*shape):
            return nn.Parameter(torch.randn(shape, generator=rng) / math.sqrt(shape[-1]))

        self.first, self.second = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.ones(WIDTH))
        self.qkv, self.out = weight(3 * WIDTH, WIDTH), weight(WIDTH, WIDTH)
        self.up, self.down = weight(2 * WIDTH, WIDTH), weight(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        heads = functional.linear(self.norm(x, self.first), self.qkv).view(*x.shape[:2], 3, HEADS, WIDTH // HEADS)
        o = self.attention(*heads.permute(2, 0, 3, 1, 4).unbind(), is_causal=True)
        x = x + functional.linear(o.transpose(1, 2).reshape(x.shape), self.out)
        gate, up = functional.linear(self.norm(x, self.second), self.up).chunk(2, dim=-1)
        return x + functional.linear(functional.silu(gate) * up, self.down)


def losses(block, model):
    """The losses of a few steps of training."""
    rng = torch.Generator().manual_seed(1)
    x, y = torch.randn(2, BATCH, TOKENS, WIDTH, generator=rng)
    optimizer, found = torch.optim.SGD(block.parameters(), lr=0.1), []
    for _ in range(STEPS):
        loss = functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def advice(function):
    """What to look at, of the functions that `function` finds by name; nothing where all is well."""
    try:
        mine = Block(function("rmsnorm_op"), function("attention_op"))
    except Exception as error:
        return [f"the submission cannot be imported here: {error!r}"]
    return [*of_opcheck(), *of_compile(mine)]


def of_opcheck():
    for name, (shapes, others) in OPERATORS.items():
        packet = getattr(torch.ops.cs336, name, None)
        if packet is None:
            yield f"there is no operator cs336::{name}"
            continue
        tensors = [torch.randn(shape).requires_grad_() for shape in shapes]
        if not has_gradient(packet.default, tensors, others):  # but a Function that calls it may have one
            tensors = [tensor.detach() for tensor in tensors]
        try:
            found = torch.library.opcheck(packet.default, (*tensors, *others), raise_exception=False)
        except Exception as error:
            found = {"a call": error}
        for test, said in found.items():
            if isinstance(said, BaseException):
                yield f"torch.library.opcheck of cs336::{name}, {test}: {brief(said)}"


def has_gradient(operator, tensors, others):
    try:
        came = operator(*tensors, *others)
        torch.autograd.grad((came if isinstance(came, Tensor) else came[0]).sum(), tensors)
    except Exception:
        return False
    return True


def of_compile(mine):
    try:
        mine(torch.zeros(BATCH, TOKENS, WIDTH))
    except Exception:  # what takes a GPU's tensors alone outside of its operators cannot be tried here
        return
    try:
        compiled = losses(mine, torch.compile(mine, fullgraph=True, backend="aot_eager"))
    except Exception as error:
        yield from graph_breaks(mine) or [f"torch.compile(fullgraph=True) of a block: {brief(error)}"]
        return
    theirs = Block(
        lambda x, weight: functional.rms_norm(x, weight.shape, weight, 1e-5), functional.scaled_dot_product_attention
    )
    for step, (a, b) in enumerate(zip(compiled, losses(theirs, theirs), strict=True), start=1):
        if not abs(a - b) <= FAR * b:
            yield f"step {step} of training has a loss of {a:.4f} compiled, and {b:.4f} with PyTorch's own operators"
            return


def graph_breaks(block):
    """Where torch.compile would leave the graph, and why."""
    torch._dynamo.reset()
    try:
        found = torch._dynamo.explain(block)(torch.zeros(BATCH, TOKENS, WIDTH)).break_reasons
    except Exception:
        return []
    reasons = {}
    for one in sorted(found, key=lambda one: len(str(one.reason))):  # of several at a line the one that says most
        reasons[place(one.user_stack[-1])] = brief(one.reason)
    return [f"torch.compile breaks the graph at {at}: {reason}" for at, reason in reasons.items()]


def place(frame):
    return f"cs336_kernels/{frame.filename.rpartition('cs336_kernels/')[2]}:{frame.lineno} in {frame.name}"


def brief(said):
    """The first lines of an exception's words, and the last place in the submission that it names."""
    text = str(said).strip() or repr(said)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    places = [line for line in lines if line.startswith("File") and "cs336_kernels/" in line]
    at = [f"at cs336_kernels/{places[-1].rpartition('cs336_kernels/')[2]}".replace('", line ', ":")] if places else []
    return "\n  ".join(
        [f"{type(said).__name__ + ': ' if isinstance(said, BaseException) else ''}{lines[0]}", *lines[1:3], *at]
    )
