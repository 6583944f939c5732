"""Dropout, residual and LayerNorm on a GPU: a quarter of a GB of x at every width, beside a copy and PyTorch."""

import functools
from collections.abc import Callable

import torch

from assignment.operators.layernorm.workload import hand_on
from assignment.operators.workloads import COPYING, ELEMENTS, Spec, Workload, nothing_compiled, panel_of_rows, pick_rows
from tests.compare import Expected
from tests.dropout_add_layernorm import models
from tests.philox import rand

WIDTHS = [1024 << i for i in range(6)]
FORWARD, BACKWARD = "dropout_add_layernorm_forward", "dropout_add_layernorm_backward"
PEERS = dict.fromkeys((FORWARD, BACKWARD), (COPYING, "naive", "compiled"))
PANELS = (panel_of_rows("Dropout, residual and LayerNorm", "dropout_add_layernorm"),)
compiled = nothing_compiled


def workload(
    n_rows: int, d: int, dtype: torch.dtype, backward: bool = False, p: float = 0.1, seed: int = 0
) -> Workload:
    """Return the work on x of n_rows × d."""
    x, vector, per_row = Spec(dtype, (n_rows, d)), Spec(dtype, (d,)), Spec(torch.float32, (n_rows,))
    picked = functools.partial(pick_rows, model_of=model_of)
    statistics = functools.partial(hand_on, normalized="summed")
    options = {"p": p, "seed": seed}
    if backward:
        inputs = {"grad_y": x, "summed": x, "weight": vector, "mean": per_row, "rstd": per_row}
        outputs = {"grad_x": x, "grad_residual": x, "grad_weight": vector, "grad_bias": vector}
        return Workload(
            BACKWARD, inputs, outputs, options, arithmetic=60.0 * n_rows * d, hand_on=statistics, picked=picked
        )
    inputs = {"x": x, "residual": x, "weight": vector, "bias": vector}
    outputs = {"y": x, "summed": x, "mean": per_row, "rstd": per_row}
    return Workload(FORWARD, inputs, outputs, options, arithmetic=60.0 * n_rows * d, picked=picked)


def model_of(work: Workload, rows: list[int]) -> Callable[..., dict[str, Expected]]:
    """Return the model of these rows, whose random numbers are those of their places in the whole."""
    d = work.largest.shape[-1]
    numbers = rand(work.options["seed"], (torch.tensor(rows)[:, None] * d + torch.arange(d)).reshape(-1))
    keep = (numbers >= torch.tensor(work.options["p"], dtype=torch.float32)).view(len(rows), d)
    model = models.backward_with if work.function == BACKWARD else models.forward_with
    return lambda *tensors, p, seed: model(keep, *tensors, p=p)


def sweep() -> list[Workload]:
    """Return the sizes of a bench."""
    n = ELEMENTS // 2
    return [workload(n // d, d, torch.bfloat16, back) for back in (False, True) for d in WIDTHS]
