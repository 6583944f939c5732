"""What is used of pytest beyond its documentation: the one module to open when pytest is upgraded."""

from collections.abc import Sequence

import pytest
from _pytest.config import _prepareconfig
from _pytest.outcomes import Failed as TestFailed
from _pytest.runner import runtestprotocol

__all__ = ["TestFailed", "call_again", "collect", "runtestprotocol"]

CHECKED = ("9.2.0",)


def collect(arguments: Sequence[str], plugins: list) -> pytest.Session:
    """Return a session with its tests, as `pytest.main` has it when it begins to run them; it reports nothing."""
    config = _prepareconfig([*arguments], [*plugins])
    config._do_configure()
    if config.pluginmanager.has_plugin("terminalreporter"):
        config.pluginmanager.unregister(name="terminalreporter")
    session = pytest.Session.from_config(config)
    config.hook.pytest_sessionstart(session=session)
    config.hook.pytest_collection(session=session)
    return session


def call_again(item: pytest.Function) -> None:
    """Call a test's own function with its fixtures, as pytest has done."""
    item.obj(**{name: item.funcargs[name] for name in item._fixtureinfo.argnames})
