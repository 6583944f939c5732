"""A LayerNorm, forward and backward, right by default; what is told of one that is not."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from assignment.operators.misconception import Call, Misconception, exact
from assignment.operators.rows import Round, Variants

Statistic = Callable[[Tensor], Tensor]  # of rows, one number each, as a column
Outputs = Sequence[Tensor]


def usual_mean(x: Tensor) -> Tensor:
    return x.mean(-1, keepdim=True)


def usual_variance(x: Tensor, mean: Tensor) -> Tensor:
    return (x - mean).square().mean(-1, keepdim=True)


def usual_rstd(variance: Tensor, eps: float) -> Tensor:
    return (variance + eps).rsqrt()


@dataclass(frozen=True)
class Forward:
    """Each field is a thing that can be wrong."""

    mean: Statistic = usual_mean
    variance: Callable[[Tensor, Tensor], Tensor] = usual_variance
    rstd: Callable[[Tensor, float], Tensor] = usual_rstd
    y: Callable[..., Tensor] = lambda x, mean, rstd, weight, bias: (x - mean) * rstd * weight + bias
    used: Round = exact  # mean and rstd in y
    returned: Round = exact

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        """Return (y, mean, rstd)."""
        x, weight, bias = x.double(), weight.double(), bias.double()
        mean = self.mean(x)
        rstd = self.rstd(self.variance(x, mean), eps)
        y = self.y(x, self.used(mean), self.used(rstd), weight, bias)
        return y, self.returned(mean).squeeze(-1), self.returned(rstd).squeeze(-1)


@dataclass(frozen=True)
class Backward:
    """Each field is a thing that can be wrong."""

    h: Callable[[Tensor, Tensor], Tensor] = lambda grad_y, weight: grad_y * weight
    mean: Statistic = usual_mean  # over a row, of h and of h ∘ x̂
    h_sign: float = -1.0
    along_sign: float = -1.0
    in_means: Callable[[Tensor, Tensor], Tensor] | None = None  # what the means have in place of h
    x_hat: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda x, mean, rstd: (x - mean) * rstd
    outer: Callable[[Tensor], Tensor] = exact  # rstd in front
    rstd: Callable[[Tensor], Tensor] = exact
    weight_terms: Callable[..., Tensor] = lambda grad_y, x, mean, rstd: grad_y * (x - mean) * rstd
    bias_terms: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda grad_y, weight, x_hat: grad_y
    sum_rows: Callable[[Tensor], Tensor] = lambda terms: terms.sum(0)
    product: Round = exact

    def __call__(
        self, grad_y: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return (grad_x, grad_weight, grad_bias)."""
        grad_y, x, weight = grad_y.double(), x.double(), weight.double()
        mean, rstd = mean.double().unsqueeze(-1), self.rstd(rstd.double().unsqueeze(-1))
        x_hat = self.product(self.x_hat(x, mean, rstd))
        h = self.product(self.h(grad_y, weight))
        in_means = h if self.in_means is None else self.in_means(grad_y, weight)
        along = self.mean(self.product(in_means * x_hat))
        grad_x = self.outer(rstd) * (h + self.h_sign * self.mean(in_means) + self.along_sign * x_hat * along)
        weight_terms, bias_terms = self.weight_terms(grad_y, x, mean, rstd), self.bias_terms(grad_y, weight, x_hat)
        grad_weight, grad_bias = (
            self.sum_rows(self.product(terms.expand_as(x)).reshape(-1, x.shape[-1]))
            for terms in (weight_terms, bias_terms)
        )
        return grad_x, grad_weight, grad_bias


@dataclass(frozen=True)
class Told:
    """A misconception without its function: its name, what it says, where to look, the part of the chapter."""

    name: str
    says: str
    look: str
    part: str


def of_chapter(chapter: str, told: Told, model: Variants) -> Misconception:
    return Misconception(f"{chapter}-{told.name}", told.says, told.look, f"handout/{chapter}.md#{told.part}", model)


MATH, BACK, ALGORITHM = "forward-mathematics", "backward-mathematics", "algorithm"
NUMBERS, INTERFACE = "what-goes-wrong", "interface"


def rounding(call: Call) -> Round:
    dtype = call.dtype
    return lambda x: x.to(dtype).double()
