"""What a new operator has one of, to be changed: a bug that negates its result, and the misconception that fits."""

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass

from assignment.bank.operators.edits import ARROW
from assignment.new.names import OperatorError
from assignment.operators import part
from assignment.operators.misconception import Models
from assignment.verdict import checks
from tests import operators

WRONG = """\
| what you see | look at |
|---|---|
| every number has the other sign | the line that stores the result |
"""
MISCONCEPTIONS = '''"""What can go wrong in {name}."""

from collections.abc import Iterator, Sequence

from torch import Tensor

from assignment.operators.misconception import Call, Misconception, Models
from tests.{name} import oracle

WRONG = "handout/{name}.md#what-goes-wrong"


def negated(call: Call) -> Iterator[Sequence[Tensor]]:
    """Yield {first} with the other sign."""
    {inputs} = call.tensors
    {results} = oracle.{oracle}({given}, **call.options)
    yield [-{results}]


{right}THE_SIGN = Misconception("{name}-negated", "Your {first} has the other sign", "What is stored?", WRONG, negated)
MODELS = {{{models}}}
'''
RIGHT = """def right_{oracle}(call: Call) -> Sequence[Tensor]:
    {inputs} = call.tensors
    return {results}


"""
BUGS = '''"""Planted bugs of {name}: see assignment/bank/operators/edits.py."""

from assignment.bank.operators.edits import bug

PROBLEM = "{name}"
FILES = ("practice/{name}.py",)
BUGS = [
    bug(
        "the other sign",
        "{check}",
{edits}        named="{name}-negated",
    )
]
'''


@dataclass(frozen=True)
class TheSign:
    """A new operator's one mistake: the first result of its first function has the other sign."""

    like: operators.Operator
    name: str
    renamed: Callable[[str], str]

    def misconceptions(self) -> str:
        """Return its model, and none for the other functions."""
        first, *_ = functions = [one for one in self.like.functions if not one.gradients]
        return MISCONCEPTIONS.format(
            name=self.name,
            first=first.outputs[0],
            inputs=unpacked(first),
            results=", ".join(first.outputs),
            oracle=self.renamed(first.oracle),
            given=", ".join(first.inputs),
            right="".join(self._right(one) for one in functions if known(one).right),
            models=", ".join(map(self._models, functions)),
        )

    def _right(self, function: operators.Function) -> str:
        """Return what says what a backward pass returns that has options."""
        called = f"oracle.{function.oracle}({', '.join(function.inputs)}, **call.options)"
        results = called if len(function.outputs) > 1 else f"[{called}]"
        return self.renamed(RIGHT.format(oracle=function.oracle, inputs=unpacked(function), results=results))

    def _models(self, function: operators.Function) -> str:
        told = ["[THE_SIGN]" if function == self.like.functions[0] else "[]", "WRONG"]
        told += [f"n_inner={known(function).n_inner}"] if known(function).n_inner != 1 else []
        told += [f"right=right_{function.oracle}"] if known(function).right else []
        return self.renamed(f'"{function.name}": Models({", ".join(told)})')

    def bugs(self, solution: str) -> str:
        """Return the bug, caught by the first check of the function: all lines that store its result."""
        first = self.like.functions[0]
        check = next(check.name for check in checks.declared() if check.function == first.name)
        edits = [ARROW.join((old, new)) for old, new in negations(solution, first.outputs[0])]
        if not edits:
            raise OperatorError(
                f"expected tl.store({first.outputs[0]}_ptr…, …) in the solution of {self.like.name}, "
                "got none that stands there once: choose another one"
            )
        return BUGS.format(
            name=self.name,
            check=self.renamed(check.partition("::")[2]),
            edits="".join(f"        {edit!r},\n" for edit in edits),
        )


def known(function: operators.Function) -> Models:
    models: Models = part(function.name, "misconceptions").MODELS[function.name]
    return models


def unpacked(function: operators.Function) -> str:
    """Return the left side of an assignment of a call's tensors."""
    names = ", ".join(function.inputs)
    return names if len(function.inputs) > 1 else f"({names},)"


def negations(solution: str, result: str) -> list[tuple[str, str]]:
    """Return edits by which kernels store a result with the other sign, as short as they can be."""
    found = []
    for call in ast.walk(ast.parse(solution)):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "store"):
            continue
        whole, value = (ast.get_source_segment(solution, node) or "" for node in (call, call.args[1]))
        where, comma, _ = re.split(rf"(,\s*){re.escape(value)}", whole, maxsplit=1)
        where = where.removeprefix("tl.store(").lstrip() + comma
        if not re.match(rf"{result}_(ptrs?|tiles)\b", where):
            continue
        called = value.partition("(")[0]
        old, new = (f"{called}(", f"-{called}(") if isinstance(call.args[1], ast.Call) else (value, f"-({value})")
        words = [match.start() for match in re.finditer(r"\b\w", where)]
        starts = [start for start in reversed(words) if solution.count(where[start:] + old) == 1]
        found += [(where[start:] + old, where[start:] + new) for start in starts[:1]]
    return found
