"""What a new operator has one of, to be changed: a bug that negates its result, and the misconception that fits."""

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass

from assignment.bank.operators.edits import ARROW
from assignment.new.names import OperatorError
from assignment.operators import part
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
    {results} = oracle.{oracle}(*call.tensors, **call.options)
    yield [-{results}]


THE_SIGN = Misconception("{name}-negated", "Your {first} has the other sign", "What is stored?", WRONG, negated)
MODELS = {{{models}}}
'''
BUGS = '''"""Planted bugs of {name}: see assignment/bank/operators/edits.py."""

from assignment.bank.operators.edits import bug

PROBLEM = "{name}"
FILES = ("practice/{name}.py",)
BUGS = [bug("the other sign", "{check}", {edits}, named="{name}-negated")]
'''


@dataclass(frozen=True)
class TheSign:
    """A new operator's one mistake: the first result of its first function has the other sign."""

    like: operators.Operator
    name: str
    renamed: Callable[[str], str]

    def misconceptions(self) -> str:
        """Return its model, and none for the other functions."""
        first = self.like.functions[0]
        models = (self._models(function) for function in self.like.functions if not function.gradients)
        return MISCONCEPTIONS.format(
            name=self.name,
            first=first.outputs[0],
            results=", ".join(first.outputs),
            oracle=self.renamed(first.oracle),
            models=", ".join(models),
        )

    def _models(self, function: operators.Function) -> str:
        known = part(function.name, "misconceptions").MODELS[function.name]
        told = ["[THE_SIGN]" if function == self.like.functions[0] else "[]", "WRONG"]
        told += [f"n_inner={known.n_inner}"] if known.n_inner != 1 else []
        if known.right:  # its options are those of the call
            right = f"oracle.{function.oracle}(*call.tensors, **call.options)"
            told += [f"right=lambda call: {right if len(function.outputs) > 1 else f'[{right}]'}"]
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
            name=self.name, check=self.renamed(check.partition("::")[2]), edits=", ".join(map(repr, edits))
        )


def negations(solution: str, result: str) -> list[tuple[str, str]]:
    """Return edits by which kernels store a result with the other sign, as short as they can be."""
    found = []
    for call in ast.walk(ast.parse(solution)):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "store"):
            continue
        whole, value = (ast.get_source_segment(solution, node) or "" for node in (call, call.args[1]))
        where = whole[: whole.index(f", {value}")].removeprefix("tl.store(")
        if not re.match(rf"{result}_(ptrs?|tiles)\b", where):
            continue
        called, bracket, _ = value.partition("(")
        old, new = (
            (called + bracket, f"-{called}{bracket}") if isinstance(call.args[1], ast.Call) else (value, f"-({value})")
        )
        if solution.count(f"{where}, {old}") == 1:
            found.append((f"{where}, {old}", f"{where}, {new}"))
    return found
