"""Whether the work of a timed program is done by its kernels, judged from its steps.

At the sizes that are timed not every element is tracked, as in the simulator at smaller ones. Here
it is enough to know of each storage whether it holds a caller's data: operations that compute may
use kernels' results only.
"""

from dataclasses import dataclass, field

from assignment.protocol.program import Inputs, Launch, Operation, Program, views_in
from assignment.protocol.said import Said, at, joined
from tests import operators

_MAKING = """
arange empty empty_like empty_permuted empty_strided eye full full_like new_empty new_empty_strided new_full new_ones
new_zeros ones ones_like scalar_tensor zeros zeros_like fill fill_ zero zero_
"""
_MOVING = """
_to_copy _reshape_copy _unsafe_view cat clone constant_pad_nd copy copy_ expand_copy permute_copy repeat stack view_copy
lift_fresh_copy flip roll
"""
MAKING, MOVING = frozenset(_MAKING.split()), frozenset(_MOVING.split())
SCALING = frozenset(("mul", "mul_", "div", "div_", "neg", "neg_"))  # of one tensor by a number
ROWSUM = frozenset(("mul", "mul_", "sum"))  # D = rowsum(dO ∘ O), in FlashAttention's backward pass
COMPUTES = "is computed by {} of PyTorch's, from the inputs: compute it in a kernel"


@dataclass
class Found:
    """The findings about a program."""

    evidence: list[Said] = field(default_factory=list)
    doubts: list[Said] = field(default_factory=list)
    # bytes beside the inputs, of this call and of all that is kept, as the player measures it
    peak: int = 0


def examined(program: Program, function: str) -> Found:
    """Examine the steps of a program.

    Args:
        program: the program.
        function: that the call is of.
    """
    found, given = Found(), set[int]()  # storages that hold values of the inputs
    launched: set[int] = set()  # and were an argument of a launch since
    of = [view.storage for view in program.views]
    may_sum_rows, structure = operators.functions()[function].sums_rows, operators.about(function)["structure"]
    for step in program.steps:
        match step:
            case Inputs(views):
                given |= {of[view] for place, view in enumerate(views) if place not in structure}
            case Launch():
                launched |= {of[view] for view in views_in([*step.arguments.values(), *step.options.values()])}
            case Operation(operation, args, kwargs, made, line):
                called = program.operations[operation].removeprefix("aten::").partition(".")[0]
                operands = [of[view] for view in views_in([args, kwargs])]
                read = given.intersection(operands)
                launched -= {of[view] for view in made}  # these storages hold new values
                if called in MAKING:
                    continue
                if called in MOVING or (called in SCALING and len(operands) == 1):
                    given |= {of[view] for view in made} if read else set()
                elif read and not (may_sum_rows and called in ROWSUM):
                    where = program.lines[line]
                    here = at(where.path, where.number, f" in {where.function}")
                    said = joined([f"a result {COMPUTES.format(called)}", here])
                    (found.doubts if read <= launched else found.evidence).append(said)
    if not program.launches():
        found.evidence.append(Said("no kernel is launched"))
    return found
