"""What is used of pytest beyond its documentation: the one module to open when pytest is upgraded."""

import pytest
from _pytest.outcomes import Failed as TestFailed
from _pytest.runner import runtestprotocol

__all__ = ["TestFailed", "call_again", "runtestprotocol"]

CHECKED = ("9.2.0",)


def call_again(item: pytest.Function) -> None:
    """Call a test's own function with its fixtures, as pytest has done."""
    item.obj(**{name: item.funcargs[name] for name in item._fixtureinfo.argnames})
