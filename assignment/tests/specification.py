"""The oracles and the honest models of all operators, by the names of the oracles' functions; who is checked how."""

import importlib
from types import SimpleNamespace

from assignment.verdict.diagnosis.candidates import MODELS, told_by
from assignment.verdict.finding import Explanation
from tests import operators
from tests.families import Subject

oracle = SimpleNamespace(**{f.oracle: operators.oracle(f.oracle) for f in operators.functions().values()})
functions = {f.oracle: operators.of_oracle(f.oracle).name for f in operators.functions().values()}
models = SimpleNamespace(**{name: operators.model(function) for name, function in functions.items()})


def subjects(function: str) -> list[Subject]:
    """Return what an operator's test files check of the function of this oracle's name."""
    name = operators.of_oracle(function).name
    folder = operators.HERE / operators.operator_of(name).name
    modules = (importlib.import_module(f"tests.{folder.name}.{path.stem}") for path in folder.glob("test_*.py"))
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Subject)]
    return [subject for subject in found if subject.function == name]


def at_least_matrices(subject, rng, shape, dtype):
    """Return the tensors of a call; of an operator whose shapes have one size more, its first input is square."""
    tensors = subject.build(rng(), shape, dtype)
    return tensors if tensors[0].ndim > 1 else subject.build(rng(), (shape[0], *shape), dtype)


def explanations() -> list[Explanation]:
    """Return all misconceptions as they are told."""
    return [told_by(one) for of in MODELS.values() for one in of.misconceptions]
