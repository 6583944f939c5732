"""A practice operator is small: what is particular to it, and nothing that others have too."""

import pytest

from assignment.attacks import lines
from tests import operators

PRACTICE = [operator.name for operator in operators.operators() if operator.is_practice]


@pytest.mark.parametrize("operator", PRACTICE)
def test_a_practice_operator_has_few_lines(operator):
    counts = lines.counted(operator)
    assert any(name.endswith("bugs.py") for name in counts)
    assert sum(counts.values()) <= lines.MOST


def test_the_lines_are_printed(capsys):
    assert lines.main() == 0
    assert {f"{name}:" for name in PRACTICE} <= set(capsys.readouterr().out.split())
