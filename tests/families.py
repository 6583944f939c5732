"""Families of checks, each written once: an operator's test file applies them to its functions, as data.

    test_forward_ragged = values(1, "rmsnorm_forward is right for every shape", FORWARD, RAGGED)

is a check of 1 point. Its claim begins with the function's name; the grader reads both from the source, where they
stand as constants, before anything runs. A check belongs to the problem of its function unless `problem` says another.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from tests import operators
from tests.compare import Expected, Mismatch, TooMuchMoved, in_form, worst_margin
from tests.inputs import drawn

# Where the tensors of a call lie: of them, and of the memory in bytes that is there.
Layout = Callable[[Sequence[Tensor], int], Sequence[Tensor]]
Test = Callable[..., None]
Results = tuple[Tensor, ...]
# The changed inputs of a call, what the results of the unchanged ones become, and which part of them to look at.
Change = tuple[Sequence[Tensor], Callable[..., Results], slice]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
LOW_PRECISION = {"bfloat16": torch.bfloat16, "float16": torch.float16}
GPUS = "a100", "h100", "b200"  # that kernels are compiled for
SLACK = 0.05  # of a tensor's size
VECTOR = 1 / 16  # of the largest tensor's size: a smaller one is a vector,
VECTOR_SLACK = 0.1  # whose traffic may be so much of the largest tensor's
SEVERAL = "each program has several tiles here, one after the other: look at what its loop keeps, and where it stores"
N_ROWS, N_COLUMNS, INFINITE, NOT_A_NUMBER = 9, 40, 2, 6  # of x, to see whether rows keep to themselves
OTHER_ROWS = (
    "rows of x that are infinite or NaN change results of other rows\n  leave out what is not the row's own, by the "
    "mask of the load or tl.where: multiplied by zero it is NaN"
)
REMEDIES = {
    "read": "load each element in one program, once, and keep it; a copy by PyTorch reads it once more",
    "written": "store each element once, in the output itself: a copy by PyTorch writes it once more",
    "beside": "load from the inputs, and store to the results: what kernels copy is moved twice more",
}


@dataclass(frozen=True)
class Subject:
    """A function as its checks call it.

    Attributes:
        function: its name.
        build: makes the tensors of a call: build(rng, shape, dtype, **options).
        model: of these tensors and the options, the results by name with their bounds.
    """

    function: str
    build: Callable[..., Sequence[Tensor]]
    model: Callable[..., dict[str, Expected]]

    def expected(self, *tensors: Tensor, **options: Any) -> Callable[[], dict[str, Expected]]:
        """Return a function that says what a call should return; its model is computed when it is first asked.

        A check asks it for a result to compare: a call that has none costs no model.
        """
        return functools.cache(functools.partial(self.model, *tensors, **options))


@dataclass(frozen=True)
class Rounds:
    """Shapes so long that each program goes several rounds of its loop, where a call's grid is capped.

    Attributes:
        shape: the shape of inputs of a length, as the subject's build takes it.
        first: a length, of which others are multiples.
        tile: how much of the length one tile may be.
        most: the largest length: what is longer takes too long.
    """

    shape: Callable[[int], Any]
    first: int
    tile: int
    most: int

    def long_enough(self, run: Any, subject: "Subject", options: Mapping[str, Any]) -> Any:
        """Return the shape; None where the grid grows with the inputs, and each program has one tile."""

        def build(n: int) -> Sequence[Tensor]:
            return subject.build(Generator().manual_seed(n), self.shape(n), torch.float32, **options)

        length = run.rounds(subject.function, build, first=self.first, tile=self.tile, **options)
        return self.shape(min(-(-length // self.first) * self.first, self.most)) if length else None


@dataclass(frozen=True)
class Case:
    """One call of a check.

    Attributes:
        shape: as the subject's build takes it, or a function of the seed that gives one, or Rounds.
        dtype: of the inputs.
        options: keyword arguments of the call.
        layout: where the tensors lie in memory.
        build: makes the tensors, build(rng, dtype), in place of the subject.
    """

    shape: Any = None
    dtype: torch.dtype = torch.float32
    options: Mapping[str, Any] = field(default_factory=dict)
    layout: Layout = lambda tensors, memory_bytes: tensors
    build: Callable[[Generator, torch.dtype], Sequence[Tensor]] | None = None

    def drawn(self, rng: Generator) -> "Case":
        """Return the case with the shape that the seed gives."""
        return replace(self, shape=drawn(self.shape, rng))

    def tensors(self, subject: Subject, rng: Generator, memory_bytes: int = 0) -> Sequence[Tensor]:
        """Return the tensors of a call."""
        if self.build:
            return self.layout(self.build(rng, self.dtype), memory_bytes)
        return self.layout(subject.build(rng, drawn(self.shape, rng), self.dtype, **self.options), memory_bytes)


Cases = dict[str, Case]


def shapes(table: Mapping[str, Any], **options: Any) -> Cases:
    """Return a case for each of the named shapes."""
    return {name: Case(shape, options=options) for name, shape in table.items()}


def built(builders: Iterable[Callable], **options: Any) -> Cases:
    """Return a case for each builder of a call's tensors, build(rng, dtype), named after its function."""
    return {build.__name__.replace("_", " "): Case(options=options, build=build) for build in builders}


def built_by(build: Callable[..., Sequence[Tensor]], cases: Cases) -> Cases:
    """Return every case with tensors that build(rng, shape, dtype) makes, in place of the subject."""

    def own(case: Case) -> Callable[[Generator, torch.dtype], Sequence[Tensor]]:
        return lambda rng, dtype: build(rng, case.shape, dtype)

    return {name: replace(case, build=own(case)) for name, case in cases.items()}


def in_dtypes(cases: Cases, dtypes: Mapping[str, torch.dtype]) -> Cases:
    """Return every case in every dtype."""
    return {f"{n}-{dtype}": replace(case, dtype=dtypes[dtype]) for dtype in dtypes for n, case in cases.items()}


def with_options(cases: Cases, ways: Mapping[str, Mapping[str, Any]]) -> Cases:
    """Return every case with each of the named sets of options."""
    return {f"{n}-{way}": replace(case, options=ways[way]) for way in ways for n, case in cases.items()}


def laid_out(cases: Cases, ways: Mapping[str, Layout]) -> Cases:
    """Return every case in each of the named layouts."""
    return {f"{n}-{way}": replace(case, layout=ways[way]) for way in ways for n, case in cases.items()}


def parametrized(name: str | tuple[str, ...], table: Mapping[str, Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(name, table.values(), ids=table)


def check_of(points: float, claim: str, problem: str, test: Test) -> Test:
    """Return a test as a check of the grade."""
    test.__doc__ = claim
    test = pytest.mark.points(points)(test)
    return pytest.mark.problem(problem)(test) if problem else test


def values(points: float, claim: str, subject: Subject, cases: Cases, problem: str = "") -> Test:
    """Return a check that the results are right in every case."""

    @parametrized("case", cases)
    def test(check: Any, run: Any, rng: Generator, memory_bytes: int, case: Case) -> None:
        said = ""
        if isinstance(case.shape, Rounds):
            case = replace(case, shape=case.shape.long_enough(run, subject, case.options), build=None)
            if case.shape is None:
                return
            said = f"\n  {SEVERAL}"
        tensors = case.tensors(subject, rng, memory_bytes)
        try:
            check(subject.function, *tensors, **case.options, expected=subject.expected(*tensors, **case.options))
        except Mismatch as wrong:
            wrong.args = (f"{wrong}{said}",)
            raise

    return check_of(points, claim, problem, test)


def contract(points: float, claim: str, subject: Subject, cases: Cases, has_rows: bool = False) -> Test:
    """Return a check of the promises beside the values: see check_contract in conftest.py.

    has_rows: whether each row of the results is that of the first input's row alone, which costs no points.
    """

    @parametrized("case", cases)
    def test(run: Any, check_contract: Any, rng: Generator, case: Case) -> None:
        case = case.drawn(rng)
        first, second = case.tensors(subject, rng), case.tensors(subject, rng)
        expected = [subject.expected(*tensors, **case.options) for tensors in (first, second)]
        check_contract(subject.function, first, second, *expected, **case.options)
        if has_rows and first[0].numel():
            warn_of_other_rows(run, subject, rng, case.options)

    return check_of(points, claim, "", test)


def warn_of_other_rows(run: Any, subject: Subject, rng: Generator, options: Mapping[str, Any]) -> None:
    """Warn if rows that are infinite, or NaN, change others."""
    x, *others = subject.build(rng, (N_ROWS, N_COLUMNS), torch.float32, **options)
    expected, spoilt = subject.expected(x, *others, **options), x.clone()
    spoilt[INFINITE], spoilt[NOT_A_NUMBER] = torch.inf, torch.nan
    which = torch.tensor([row for row in range(N_ROWS) if row not in (INFINITE, NOT_A_NUMBER)])

    def is_right(results: Tensor | Results) -> None:
        rows = tuple(result[which] for result in in_form(results, expected()))
        wanted = {name: one.of_rows(which) for name, one in expected().items()}
        worst_margin(rows if len(rows) > 1 else rows[0], wanted, run.has_exact_margins)

    run.warn_unless(is_right, OTHER_ROWS, subject.function, spoilt, *others, **options)


def mistakes(points: float, claim: str, subject: Subject, shape: Any, changes: Mapping[str, Callable]) -> Test:
    """Return a check that a call whose tensors do not fit together raises ValueError; each change makes one of them."""

    @parametrized("change", changes)
    def test(run: Any, rng: Generator, change: Callable) -> None:
        run.raises(ValueError, subject.function, *change(*subject.build(rng, shape, torch.float32)))

    return check_of(points, claim, "", test)


def properties(points: float, claim: str, subject: Subject, changes: Mapping[str, tuple[Callable, Any]]) -> Test:
    """Return a check of what holds between two calls, whatever the oracle says.

    Args:
        changes: functions that make a Change, change(rng, *tensors), each with the shape of the unchanged inputs.
    """

    @parametrized(("change", "shape"), changes)
    def test(run: Any, rng: Generator, record_property: Any, change: Callable[..., Change], shape: Any) -> None:
        tensors = subject.build(rng, drawn(shape, rng), torch.float32)
        changed = change(rng, *tensors)
        before, after = run(subject.function, *tensors), run(subject.function, *changed[0])
        record_property("margin", compared(before, after, changed, subject.model(*tensors), run.has_exact_margins))

    return check_of(points, claim, "", test)


def compared(
    before: Results, after: Results, change: Change, bounds: dict[str, Expected], is_exact: bool = False
) -> float:
    """Return the margin of what came after the change against what came before it; each may err by its bound."""
    _, becomes, part = change
    before, after = in_form(before, bounds), in_form(after, bounds)
    for name, value in zip(bounds, before, strict=True):
        if not value.any():
            raise Mismatch(f"{name} is zero everywhere")
    wanted = {
        name: one.twice(part, value[part].double())
        for (name, one), value in zip(bounds.items(), becomes(*before), strict=True)
    }
    return worst_margin(tuple(x[part] for x in after), wanted, is_exact)


def gradients(
    points: float,
    claim: str,
    backward: Subject,
    usual: Any,
    asks: Mapping[str, Mapping[str, Any]],
    problem: str = "",
) -> Test:
    """Return a check of a differentiable function's gradients.

    Args:
        backward: the function that computes them, of the incoming gradient, the inputs, and what a forward pass leaves.
        usual: the shape of an ask that names none.
        asks: what check_gradients in conftest.py is asked for; "shape" and "options" of the call.
    """
    function = operators.named_by(claim).name

    @parametrized("ask", asks)
    def test(check_gradients: Any, rng: Generator, ask: Mapping[str, Any]) -> None:
        options = ask.get("options", {})
        grad, *others = backward.build(rng, drawn(ask.get("shape", usual), rng), torch.float32, **options)
        grad = torch.ones_like(grad) if ask.get("summed") else grad
        expected = backward.expected(grad, *others, **options)
        inputs = others[: len(operators.functions()[function].inputs)]
        asked = {key: value for key, value in ask.items() if key != "shape"}
        check_gradients(function, *inputs, grad=grad, expected=expected, **asked)

    return check_of(points, claim, problem, test)


def size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.itemsize


def margin_of_right(results: Any, expected: dict[str, Expected], why: str, is_exact: bool = False) -> float:
    """Return the results' margin; raises Mismatch that says why they have to be right."""
    try:
        return worst_margin(results, expected, is_exact)
    except Mismatch as wrong:
        wrong.args = (f"{why}:\n{wrong}",)
        raise


def moved(verb: str, name: str, nbytes: int, tensor_size: int, times: float, slack: float, remedy: str) -> None:
    """Raise Mismatch if the bytes are more than `times` the tensor's, and the slack."""
    if nbytes > times * tensor_size + slack:
        expected = "once" if times == 1 else f"at most {times:.2f} times"
        raise TooMuchMoved(
            f"{name} is {verb} {nbytes / tensor_size:.2f} times: {nbytes:,} bytes of a tensor of {tensor_size:,}; "
            f"expected {expected}\n  {remedy}"
        )


def moved_once(
    costs: Any,
    tensors: Mapping[str, Tensor],
    expected: Mapping[str, Expected],
    read: Sequence[str],
    written: Sequence[str],
) -> None:
    """Raise Mismatch unless each input in `read` is read once and each result in `written` is written once.

    Args:
        costs: what the call moved.
        tensors: all inputs by name, in order.
        expected: all results by name, in order.
    """
    largest = max(map(size, tensors.values()))
    results = {name: want.value.numel() * want.dtype.itemsize for name, want in expected.items()}
    seen = [(name, costs.read[list(tensors).index(name)], size(tensors[name]), "read") for name in read]
    seen += [(name, costs.written[list(results).index(name)], results[name], "written") for name in written]
    for name, nbytes, tensor_size, verb in seen:
        slack = SLACK * tensor_size if tensor_size > VECTOR * largest else VECTOR_SLACK * largest
        moved(verb, name, nbytes, tensor_size, 1, slack, REMEDIES[verb])
        if nbytes < tensor_size:
            said = f"{nbytes:,} bytes of {name} are {verb} in a call, of {tensor_size:,}: expected all of them"
            raise Mismatch(said)


def little_beside(costs: Any, tensors: Mapping[str, Tensor], copies: int) -> None:
    """Raise Mismatch if all else that is moved is more than writing so many float32 copies and reading each once."""
    copy = 4 * max(tensor.numel() for tensor in tensors.values())
    if costs.beside > 2 * copies * copy * (1 + SLACK):
        raise TooMuchMoved(
            f"{costs.beside:,} bytes are moved beside inputs and results, {costs.beside / copy:.1f} times a "
            f"float32 copy of the largest input: expected at most {2 * copies} times\n  {REMEDIES['beside']}"
        )


def traffic(
    points: float,
    claim: str,
    subject: Subject,
    cases: Cases,
    read: Sequence[str],
    written: Sequence[str],
    beyond: Callable[[Any, Mapping[str, Tensor], Case], None] | None = None,
) -> Test:
    """Return a check of the bytes that a call moves, counted exactly in the simulator.

    Bytes are those of the active lanes of every load, store and atomic, and what PyTorch's operations read and write
    between launches, copies of a tensor included: `x.clone()` and a kernel that reads the clone read x twice. Constant
    fills cost nothing. All else may be as much as a float32 copy of each of `read`, and the parts of each result that
    is not in `written`.

    Args:
        read: inputs that are read once.
        written: results that are written once.
        beyond: instead, raises Mismatch for what else is too much, of costs, tensors by name and the case.
    """

    @parametrized("case", cases)
    def test(costs_of: Any, rng: Generator, case: Case) -> None:
        case = case.drawn(rng)
        tensors = case.tensors(subject, rng)
        expected = subject.expected(*tensors, **case.options)
        costs = costs_of(subject.function, *tensors, **case.options, expected=expected)
        named = operators.named(subject.function, tensors)
        moved_once(costs, named, expected(), read, written)
        if beyond:
            beyond(costs, named, case)
        else:
            little_beside(costs, named, len(read) + len(expected()) - len(written))

    return check_of(points, claim, "", test)


def compiles(
    points: float, claim: str, subjects: Sequence[Subject], cases: Cases, targets: Sequence[str] = GPUS
) -> Test:
    """Return a check that the kernels compile and fit for GPUs that need not be there: A100, H100 and B200.

    They are compiled as the call's launches need them, of an autotuned kernel all configurations, of which one that
    fits is enough. Registers that spill cost nothing: `python -m assignment.compiling` tells of them. The results of
    the call must be right as well; how close they come is not recorded, since what was compiled before is not called.
    """

    @parametrized("case", cases)
    def test(run: Any, rng: Generator, case: Case) -> None:
        for subject in subjects:
            tensors = case.tensors(subject, rng)
            expected = subject.expected(*tensors, **case.options)

            def right(results: Any, expected: Callable[[], dict[str, Expected]] = expected) -> None:
                margin_of_right(results, expected(), "kernels are to compile for right results; these are wrong")

            if problems := run.compiled(subject.function, *tensors, right=right, targets=targets, **case.options):
                raise Mismatch("\n".join(problems))

    return pytest.mark.lengthy(check_of(points, claim, "", test))


def speed(points: float, claim: str, cases: Cases, against: str, reach: float, memory: Cases | None = None) -> Test:
    """Return a check of the speed on a GPU, next to a peer in the same minutes: a slower GPU is no handicap.

    Full points from a stated fraction of the peer's speed, proportionally fewer below it, none for a wrong result. The
    clock is the grader's own; handout/grading.md has more. The points are those of the problem `speed`; of practice
    they are its own.

    Args:
        against: the peer; "copying" is a copy of as many bytes as the function has to read and write.
        reach: the fraction for full points.
        memory: cases that are not timed: their memory has to grow with n·d.
    """
    function = operators.named_by(claim).name
    memory = memory or {}

    @parametrized("case", cases | memory)
    def test(speed: Any, case: Case) -> None:
        if case in memory.values():
            speed.memory(function, case.shape, case.dtype, **case.options)
        else:
            speed(function, case.shape, case.dtype, against=against, reach=reach, **case.options)

    return check_of(points, claim, "speed", test)
