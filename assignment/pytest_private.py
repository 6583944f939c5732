"""What is used of pytest beyond its documentation: the one module to open when pytest is upgraded."""

from _pytest.outcomes import Failed as TestFailed
from _pytest.runner import runtestprotocol

__all__ = ["TestFailed", "runtestprotocol"]

CHECKED = ("9.2.0",)
