"""What can go wrong with eps."""

import torch

from assignment.operators.misconception import Misconception
from assignment.operators.rmsnorm.misconceptions.forward_model import INTERFACE, MATH, usual_rstd, with_rstds

MISCONCEPTIONS = [
    Misconception(
        "eps-missing",
        "Your result equals RMSNorm without eps",
        "What keeps the root of a row of zeros from being 0?",
        MATH,
        with_rstds(lambda x, eps: usual_rstd(x, 0.0)),
    ),
    Misconception(
        "eps-outside-the-root",
        "Your result equals RMSNorm with eps added outside of the root",
        "rstd = 1/√(mean + eps): what stands under the root?",
        MATH,
        with_rstds(
            lambda x, eps: 1 / (x.square().mean(-1, keepdim=True).sqrt() + eps),
            lambda x, eps: x.square().mean(-1, keepdim=True).rsqrt() + eps,
        ),
    ),
    Misconception(
        "eps-added-to-the-sum",
        "Your result equals RMSNorm with eps added to the sum of squares before it is divided by d",
        "rstd = 1/√(mean + eps): divide first.",
        MATH,
        with_rstds(lambda x, eps: usual_rstd(x, eps / x.shape[-1])),
    ),
    Misconception(
        "eps-as-a-limit",
        "Your result equals RMSNorm with eps as the least mean instead of added to it",
        "rstd = 1/√(mean + eps).",
        MATH,
        with_rstds(lambda x, eps: x.square().mean(-1, keepdim=True).clamp(min=eps).rsqrt()),
    ),
    Misconception(
        "eps-fixed",
        "Your result equals RMSNorm with an eps of its own, whatever the argument is",
        "eps is an argument with a default: does it reach the kernel?",
        INTERFACE,
        with_rstds(
            *(
                lambda x, eps, own=own: usual_rstd(x, own)
                for own in (1e-5, 1e-6, 1e-8, 1e-12, 1e-4, 1e-3, torch.finfo(torch.float32).eps)
            )
        ),
    ),
    Misconception(
        "eps-limited",
        "Your result equals RMSNorm with an eps that is cut off where it is large",
        "eps is whatever the caller says.",
        INTERFACE,
        with_rstds(
            *(
                lambda x, eps, most=most: usual_rstd(x, min(eps, most))
                for most in (by * 10.0**-i for i in range(1, 7) for by in (1, 2, 3, 5))
            )
        ),
    ),
    Misconception(
        "eps-squared",
        "Your result equals RMSNorm with eps² in place of eps",
        "rstd = 1/√(mean + eps).",
        MATH,
        with_rstds(lambda x, eps: usual_rstd(x, eps * eps)),
    ),
]
