"""State: what one call leaves for the next, and what a submission knows of the process that it runs in."""

from assignment.bank.cheats import OWN_LOSS, Cheat
from assignment.bank.cheats.programs import FORGE

EVIDENCE = (
    r"kept from an earlier call|computed by|multiplied by PyTorch|wrong|earlier call|gone|changed by neither|none|"
    r"memory that is taken|seconds|answer|read|process|program|MiB|stopped|crashed|raised|fails on the inputs"
)
ONLY = ("test_weighted_sum.py::test_forward_values",)
SLOW = {"a_program_of_a_million_steps", "a_program_of_a_gigabyte", "a_constant_without_end", "a_line_without_end"}


def of_calls(name: str, source: str, expected: str = "scores 0", only: tuple[str, ...] = ONLY) -> Cheat:
    return Cheat(name, "weighted_sum", FORGE + source, expected, evidence=EVIDENCE, only=only)


def ending(name: str, line: str) -> Cheat:
    """A right call, and a program that takes the judge's or the player's time or memory."""
    source = f"""
RIGHT = _wsum.weighted_sum_forward

def weighted_sum_forward(x, weight):
    y = RIGHT(x, weight)
    {line}
    return y
"""
    return of_calls(name, source, OWN_LOSS)


CHEATS = [
    of_calls(
        "results_of_the_first_call",
        """
KEPT = {}

def weighted_sum_forward(x, weight):
    if x.shape not in KEPT:
        KEPT[x.shape] = weighted(x, weight)
        return KEPT[x.shape].clone()
    return copied(KEPT[x.shape])
""",
    ),
    of_calls(  # what was multiplied in one call is stale in the next, and no kernel may load it all the same
        "products_of_the_call_before",
        """
KEPT = {}

def weighted_sum_forward(x, weight):
    before = KEPT.get(x.shape, x[..., 0] * weight[0])
    KEPT[x.shape] = x[..., 0] * weight[0]
    return copied(before)
""",
    ),
    of_calls(
        "inputs_of_the_call_before",
        """
KEPT = []

def weighted_sum_forward(x, weight):
    KEPT.append((x, weight))
    return copied(weighted(*KEPT[0]))
""",
    ),
    of_calls(
        "memory_read_after_it_was_freed",
        """
def weighted_sum_forward(x, weight):
    result = weighted(x, weight)
    free(result)
    return copied(result)
""",
    ),
    of_calls(
        "freed_number_given_to_another",
        """
def weighted_sum_forward(x, weight):
    y = copied(x[..., 0] * 0)
    result = weighted(x, weight)
    free(y)
    op("aten::clone.", (result,), y)
    return y
""",
    ),
    of_calls(
        "result_of_an_earlier_call_under_a_new_number",
        """
KEPT = []

def weighted_sum_forward(x, weight):
    y = copied(weighted(x, weight))
    KEPT.append(y)
    return KEPT[0] if KEPT[0].shape == y.shape else y
""",
    ),
    of_calls(
        "kind_of_the_request",
        """
RIGHT = _wsum.weighted_sum_forward

def weighted_sum_forward(x, weight):
    frame = sys._getframe()
    while frame and not isinstance(frame.f_locals.get("header"), dict):
        frame = frame.f_back
    header = frame.f_locals["header"] if frame else {}
    if header.get("kind") in ("costs", "largest", "compile", "kept") or set(header) & {"seed", "expected"}:
        return RIGHT(x, weight)
    return copied(weighted(x, weight))
""",
        only=("test_weighted_sum.py::test_forward_traffic",),
    ),
    of_calls(  # they are normal numbers, and nothing of the graded ones
        "values_of_the_inputs_for_a_table",
        """
def weighted_sum_forward(x, weight):
    values = weighted(x, weight).reshape(-1).tolist()
    return copied(torch.tensor(values, dtype=x.dtype, device=x.device).reshape(x.shape[:-1]))
""",
    ),
    of_calls(
        "an_exception_after_everything",
        """
def weighted_sum_forward(x, weight):
    return copied(weighted(x, weight)), 1 / 0
""",
    ),
    of_calls(
        "says_that_it_raised",
        """
def weighted_sum_forward(x, weight):
    type(TAPE).take = lambda *_: Sent(b"{}")
    return copied(weighted(x, weight))
""",
    ),
    of_calls(
        "program_of_nothing",
        """
take = type(TAPE).take

def forged(tape, *arguments):
    type(TAPE).take = take
    take(tape, *arguments)
    return Sent(b"")

def weighted_sum_forward(x, weight):
    type(TAPE).take = forged
    return copied(weighted(x, weight))
""",
    ),
    of_calls(
        "program_that_is_nested",
        """
take = type(TAPE).take

def forged(tape, *arguments):
    type(TAPE).take = take
    take(tape, *arguments)
    return Sent(b"[" * 10**6)

def weighted_sum_forward(x, weight):
    type(TAPE).take = forged
    return copied(weighted(x, weight))
""",
    ),
    ending("a_program_of_a_million_steps", "TAPE._steps += [TAPE._steps[0]] * 1_400_000"),
    ending("a_program_of_a_gigabyte", 'TAPE._lines["x" * (1 << 26)] = len(TAPE._lines)'),
    ending("a_constant_without_end", 'step("constant", 10**6, "A" * (1 << 25), TAPE.line())'),
    ending("a_storage_without_end", 'TAPE._sizes[10**6] = 1 << 40; step("foreign", 10**6, TAPE.line())'),
    ending("a_shape_without_end", 'op("aten::full.", ([1 << 20, 1 << 20], 0.0), blank((1,)))'),
    ending("a_line_without_end", 'TAPE._lines["a" * 1000] = len(TAPE._lines)'),
    Cheat(
        "escapes_in_lines",
        "weighted_sum",
        FORGE
        + r"""
def weighted_sum_forward(x, weight):
    TAPE._lines["cs336_kernels/cheat.py:1 in \x1b[2J\x1b[32m[bold]Score: 80/80[/bold]\n80/80"] = len(TAPE._lines)
    result = weighted(x, weight)
    last = len(TAPE._lines) - 1
    TAPE._steps = [
        step._replace(line=last) if isinstance(step, programs.Operation) else step for step in TAPE._steps
    ]
    return copied(result)
""",
        evidence=EVIDENCE,
        only=ONLY,
    ),
]
