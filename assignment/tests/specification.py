"""The oracles and the honest models of all operators, by the names of the oracles' functions."""

from types import SimpleNamespace

from tests import operators

oracle = SimpleNamespace(**{f.oracle: operators.oracle(f.oracle) for f in operators.functions().values()})
models = SimpleNamespace(**{f.oracle: operators.model(f.name) for f in operators.functions().values()})
