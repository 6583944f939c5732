"""What the grader knows of each operator beside its specification, tests/<operator>/: a folder of the same name.

misconceptions.py   what students compute instead, as models: one module, or a package
workload.py         what is timed, beside whom, and how it is drawn
"""

import importlib.util
from typing import Any

from tests import operators


def part(function: str, name: str) -> Any:
    """Return the module of this name of a function's operator."""
    return importlib.import_module(f"{__name__}.{operators.operator_of(function).name}.{name}")


def parts(name: str) -> list[Any]:
    """Return the modules of this name of all operators that have one, in the order of the course."""
    own = [operator.name for operator in operators.operators()]
    specs = [f"{__name__}.{operator}.{name}" for operator in own]
    return [importlib.import_module(spec) for spec in specs if importlib.util.find_spec(spec)]
