"""What layernorm returns, and how far a right kernel may be from it: see tests/compare.py.

expect_forward and expect_backward serve every operator with a LayerNorm in it.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from tests.compare import Expected, expect
from tests.layernorm import oracle
from tests.sums import as_rows, sums

MERGED = (16, 1024)  # widths of the tiles whose means and squares a kernel may merge


def layernorm_forward(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> dict[str, Expected]:
    return expect_forward(x.double(), [[x.float()]], weight, bias, eps, x.dtype)


def layernorm_backward(grad_y: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor) -> dict[str, Expected]:
    return expect_backward(grad_y, x, weight, mean, rstd, x.dtype)


def statistics(x: Tensor, eps: float) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (mean, rstd) in float32: from two walks along the row, or merged from parts of it (Chan et al. 1983)."""
    d = x.shape[-1]
    for order, total in enumerate(sums(x, dim=-1)):
        mean = total / d
        squares = sums((x - mean.unsqueeze(-1)).square(), dim=-1)
        yield mean, (squares[min(order, len(squares) - 1)] / d + eps).rsqrt()
    ways = [merged(x, width) for width in MERGED] + [paired(x, neighbours) for neighbours in (True, False)]
    for mean, squares in ways:
        yield mean, (squares / d + eps).rsqrt()


def merged(x: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Return the mean and Σ(x − mean)², tile after tile."""
    mean, squares, count = torch.zeros(x.shape[:-1]), torch.zeros(x.shape[:-1]), 0
    for tile in x.split(width, dim=-1):
        n = tile.shape[-1]
        tile_mean = tile.mean(-1)
        step, count = tile_mean - mean, count + n
        mean = mean + step * (n / count)
        own = (tile - tile_mean.unsqueeze(-1)).square().sum(-1)
        squares = squares + own + step.square() * (n * (count - n) / count)
    return mean, squares


def paired(x: Tensor, neighbours: bool) -> tuple[Tensor, Tensor]:
    """Return the mean and Σ(x − mean)², from pairs, pairs of pairs …: neighbours, or half a row apart."""
    mean, squares, count = x, torch.zeros_like(x), torch.ones(x.shape[-1])
    while mean.shape[-1] > 1:
        (mean, right), (squares, others), (count, more) = (_pairs(each, neighbours) for each in (mean, squares, count))
        step, share = right - mean, more / (count + more)
        mean, squares, count = mean + step * share, squares + others + step.square() * (count * share), count + more
    return mean.squeeze(-1), squares.squeeze(-1)


def _pairs(x: Tensor, neighbours: bool) -> tuple[Tensor, Tensor]:
    """Return the first and the second of each pair; one that is left over gets a 0."""
    even = torch.nn.functional.pad(x, (0, x.shape[-1] % 2))
    middle = even.shape[-1] // 2
    return (even[..., ::2], even[..., 1::2]) if neighbours else (even[..., :middle], even[..., middle:])


def expect_forward(
    x: Tensor, seen: Sequence[Sequence[Tensor]], weight: Tensor, bias: Tensor, eps: float, dtype: torch.dtype
) -> dict[str, Expected]:
    """Return y, mean and rstd with their bounds.

    Args:
        x: what is normalized, exact, in float64.
        seen: what a kernel may have in its place in float32: for each rounding that it may make the ways to do so.
        dtype: of y.
    """
    y, mean, rstd = oracle.layernorm_forward(x, weight, bias, eps)
    found = [[(each, *way) for each in ways for way in statistics(each, eps)] for ways in seen]
    y_models = [[value for way in ways for value in _ways_to_y(*way, weight.float(), bias.float())] for ways in found]
    size = (x.abs() + mean.abs().unsqueeze(-1)) * rstd.unsqueeze(-1) * weight.double().abs() + bias.double().abs()
    means, rstds = ([[way[i] for way in ways] for ways in found] for i in (1, 2))
    return {
        "y": expect(y, y_models, [], size, dtype, rows=True),
        "mean": expect(mean, means, [], x.abs().mean(-1), torch.float32, rows=False),
        "rstd": expect(rstd, rstds, [], rstd, torch.float32, rows=False),
    }


def _ways_to_y(x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor, bias: Tensor) -> Iterator[Tensor]:
    """From the difference, and as one multiply-add an element."""
    mean, rstd = mean.unsqueeze(-1), rstd.unsqueeze(-1)
    yield (x - mean) * rstd * weight + bias
    yield x * (rstd * weight) + (bias - mean * rstd * weight)


def expect_backward(
    grad_y: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor, dtype: torch.dtype
) -> dict[str, Expected]:
    """Return grad_x, grad_weight and grad_bias with their bounds; dtype is that of grad_x."""
    values = oracle.layernorm_backward(grad_y, x, weight, mean, rstd)
    x_models, x_size = ways_to_grad_x(grad_y, x, weight, mean, rstd)
    terms = as_rows(grad_y.float())
    weight_models = [total for x_hat in _ways_to_x_hat(x, mean, rstd) for total in sums(terms * as_rows(x_hat), dim=0)]
    weight_size = (terms.double().abs() * as_rows(_size_of_x_hat(x, mean, rstd))).sum(0)
    return {
        "grad_x": expect(values[0], [x_models], [], x_size, dtype, rows=True),
        "grad_weight": expect(values[1], [weight_models], [], weight_size, weight.dtype, rows=False),
        "grad_bias": expect(values[2], [sums(terms, dim=0)], [], terms.double().abs().sum(0), weight.dtype, rows=False),
    }


def ways_to_grad_x(
    grad_y: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor
) -> tuple[list[Tensor], Tensor]:
    """Return grad_x as honest kernels compute it in float32, and Σ|term| of its elements in float64."""
    h, rstd_, d = grad_y.float() * weight.float(), rstd.unsqueeze(-1), x.shape[-1]
    models = [
        rstd_ * (h - (total / d).unsqueeze(-1) - x_hat * (along / d).unsqueeze(-1))
        for x_hat in _ways_to_x_hat(x, mean, rstd)
        for total, along in zip(sums(h, dim=-1), sums(h * x_hat, dim=-1), strict=True)
    ]
    h_size, x_hat_size = h.double().abs(), _size_of_x_hat(x, mean, rstd)
    along_size = (h_size * x_hat_size).mean(-1, keepdim=True)
    return models, rstd_.double() * (h_size + h_size.mean(-1, keepdim=True) + x_hat_size * along_size)


def _ways_to_x_hat(x: Tensor, mean: Tensor, rstd: Tensor) -> list[Tensor]:
    """From the difference, and as one multiply-add an element."""
    mean, rstd = mean.unsqueeze(-1), rstd.unsqueeze(-1)
    return [(x.float() - mean) * rstd, x.float() * rstd - mean * rstd]


def _size_of_x_hat(x: Tensor, mean: Tensor, rstd: Tensor) -> Tensor:
    return (x.double().abs() + mean.double().abs().unsqueeze(-1)) * rstd.double().unsqueeze(-1)
