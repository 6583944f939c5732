"""Checks of what PyTorch knows of an operator: its schema, and what its fake implementation says."""

from typing import Any

from torch import Generator

from tests.compare import Mismatch
from tests.door import Returned
from tests.families import Cases, Subject, Test, check_of, parametrized

Argument = tuple[str, str, Any]  # type, name and default; "" of one without
NAMESPACE = "cs336::"


def schemas(
    points: float, claim: str, subject: Subject, cases: Cases, name: str, arguments: list[Argument], script: str = ""
) -> Test:
    """Return a check of the schema of an operator that each call makes, and that no operator writes to its inputs.

    What the script says of the submission is told beside it.
    """

    @parametrized("case", cases)
    def test(run: Any, rng: Generator, case: Any) -> None:
        if script:
            run.advise(subject.function, script)
        calls = [one for one, _ in run.traced(subject.function, *case.tensors(subject, rng), **case.options)]
        for call in calls:
            _expect_no_alias(call)
        own = next((call for call in calls if call.schema.partition("(")[0] == name), None)
        if own is None:
            others = ", ".join(call.schema.partition("(")[0] for call in calls)
            raise Mismatch(f"{subject.function} calls {others}: expected the operator {name}")
        if arguments_of(own.schema) != arguments:
            wanted = ", ".join(
                f"{kind} {name}{'' if default == '' else f'={default}'}" for kind, name, default in arguments
            )
            raise Mismatch(
                f"the schema is {own.schema}\n  expected the arguments ({wanted}), by name, type and default"
            )

    return check_of(points, claim, "", test)


def _expect_no_alias(call: Returned) -> None:
    name, _, rest = call.schema.partition("(")
    if not name.startswith(NAMESPACE):
        raise Mismatch(f"the operator {name} is not in the namespace {NAMESPACE}")
    for argument in rest.split(", "):
        if "!" in argument:
            said = f"the schema of {name} says that it writes to {argument.split()[-1].partition('=')[0]}"
            raise Mismatch(f"{said}: {call.schema}\n  mutates_args=(): it makes its results, and writes to no input")


def arguments_of(schema: str) -> list[Argument]:
    """Return the arguments in a schema's text, such as "cs336::f(Tensor x, float eps=1e-05) -> Tensor"."""
    inner = schema.partition("(")[2].rpartition(") -> ")[0]
    return [_argument(text) for text in inner.split(", ") if text not in ("", "*")]


def _argument(text: str) -> Argument:
    kind, _, rest = text.partition(" ")
    name, _, default = rest.partition("=")
    try:
        return kind, name, float(default)
    except ValueError:
        return kind, name, {"True": True, "False": False}.get(default, default)


def fakes(points: float, claim: str, subject: Subject, cases: Cases) -> Test:
    """Return a check that the fake implementation of each operator says what the operator returns."""

    @parametrized("case", cases)
    def test(run: Any, rng: Generator, case: Any) -> None:
        for call, fake in run.traced(subject.function, *case.tensors(subject, rng), **case.options):
            _expect_alike(call, fake)

    return check_of(points, claim, "", test)


def _expect_alike(call: Returned, fake: Returned) -> None:
    name = call.schema.partition("(")[0]
    if len(call.forms) != len(fake.forms):
        said = f"its fake implementation returns {len(fake.forms)} tensors, the operator {len(call.forms)}"
        raise Mismatch(f"{name}: {said}")
    for i, (own, said) in enumerate(zip(call.forms, fake.forms, strict=True), start=1):
        for part, a, b in zip(("dtype", "shape", "strides"), own, said, strict=True):
            if part == "strides":
                a, b = _walked(own[1], a), _walked(own[1], b)
            if a != b:
                which = f"result {i} of {name}" if len(call.forms) > 1 else f"the result of {name}"
                a, b = (tuple(x) if isinstance(x, list) else x for x in (a, b))
                raise Mismatch(
                    f"{which} has {part} {a}; its fake implementation says {b}\n"
                    "  code that is compiled reads the result as the fake one was: write what the operator makes"
                )


def _walked(sizes: list[int], strides: list[int]) -> list[int]:
    """Return the strides along which there is more than one element."""
    return [stride for size, stride in zip(sizes, strides, strict=True) if size > 1 and 0 not in sizes]
