"""Checks that operators on rows have in common: points and claims, which the grader reads before anything runs.

rows.checks makes them; a test file that calls it has them all, without one that `but` leaves out.
"""

from collections.abc import Mapping
from types import MappingProxyType

from tests.operators import Function, Operator

Points = float
# By the end of a check's name: points and claim, or other points alone; None: the operator has no such check.
Claims = Mapping[str, tuple[Points, str] | Points | None]

# Of the forward pass and of the backward one, each; {percent} is of a copy's speed.
COMMON: dict[str, tuple[float, str]] = {
    "ragged": (0.5, "is right for every shape: no size is a multiple of a tile"),
    "wide": (0.5, "takes rows of up to 20,000 columns"),
    "16_bit": (0.5, "takes bfloat16 and float16, and sums in float32"),
    "strides": (0.5, "reads its inputs through their strides, also of stride 0"),
    "offsets": (0.25, "has 64-bit offsets, for inputs that reach over 2³¹ elements"),
    "contract": (0.25, "leaves inputs and earlier results alone; an empty batch gives empty or zero results"),
    "mistakes": (0.25, "raises ValueError where shapes do not fit together"),
    "traffic": (0.5, "reads every input as large as x once, and writes every such result once"),
    "speed": (1.0, "reads and writes memory nearly as fast as a copy"),
}
COMPILES = (0.5, "compile and fit on A100, H100 and B200")
SIDES = ("forward", "backward")


def listed(operator: Operator, but: Claims = MappingProxyType({})) -> dict[str, tuple[float, str]]:
    """Return points and claim of each common check of an operator, by its name.

    `but` has other ones for some, and those of families that only some operators have, such as "forward_outliers".
    """
    forward, backward = passes(operator)
    found = {}
    for family, usual in COMMON.items():
        for side, function in zip(SIDES, (forward, backward), strict=True):
            if chosen := but.get(f"{side}_{family}", usual):
                points, claim = chosen if isinstance(chosen, tuple) else (chosen, usual[1])
                found[f"test_{side}_{family}"] = points, f"{function.name} {claim}"
    for side, function in zip(SIDES, (forward, backward), strict=True):
        further = {name: said for name, said in but.items() if isinstance(said, tuple) and name.startswith(f"{side}_")}
        found |= {f"test_{name}": (points, f"{function.name} {claim}") for name, (points, claim) in further.items()}
    points, claim = COMPILES
    return found | {"test_compiles": (points, f"{operator.name}'s kernels {claim}")}


def passes(operator: Operator) -> tuple[Function, Function]:
    """Return the operator's forward function and its backward one."""
    backward = next(function for function in operator.functions if function.is_backward)
    return next(function for function in operator.functions if function.name == backward.forward), backward
