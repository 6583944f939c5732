"""RMSNorm's forward pass, right by default; the sections of the handout that tell of it."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from assignment.operators.misconception import Call, exact
from assignment.operators.rows import Round, Variants

DEFAULT_EPS = 1e-5


def usual_rstd(x: Tensor, eps: float) -> Tensor:
    return (x.square().mean(-1, keepdim=True) + eps).rsqrt()


@dataclass(frozen=True)
class Forward:
    """Each field is a thing that can be wrong."""

    rstd: Callable[[Tensor, float], Tensor] = usual_rstd
    y: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda x, rstd, weight: x * rstd * weight
    used: Round = exact  # rstd in y
    returned: Round = exact

    def __call__(self, call: Call) -> tuple[Tensor, Tensor]:
        x, weight = (tensor.double() for tensor in call.tensors[:2])
        rstd = self.rstd(x, call.options.get("eps", DEFAULT_EPS))
        return self.y(x, self.used(rstd), weight), self.returned(rstd).squeeze(-1)


def with_rstds(*ways: Callable[[Tensor, float], Tensor]) -> Variants:
    return lambda call: (Forward(rstd=way)(call) for way in ways)


MATH, BACK = "handout/rmsnorm.md#forward-mathematics", "handout/rmsnorm.md#backward-mathematics"
ALGORITHM, NUMBERS = "handout/rmsnorm.md#algorithm", "handout/rmsnorm.md#what-goes-wrong"
INTERFACE = "handout/rmsnorm.md#interface"
