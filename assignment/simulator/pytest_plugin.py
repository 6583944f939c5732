"""A pytest plugin: Triton tests without a GPU, `pytest -p assignment.simulator.pytest_plugin`.

The simulator is installed before conftest files and test modules are imported. What launches do
wrong fails the test, or the fixture's first test, or the import of a file, in the words of
`python -m assignment.simulator`; `--simulate=report` tells it at the end instead. The grader's own
plugin takes `--simulate` too, and leaves tests of a submission alone: they have a simulator already.

PYTEST_DONT_REWRITE: the grader's plugin imports this, and pytest warns of what it cannot rewrite.
"""

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

import pytest

from assignment.simulator import install, kept_triton

if TYPE_CHECKING:
    from assignment.simulator.tests_run import Simulated  # loads Triton

NAME = "simulator"
FAIL, REPORT = "fail", "report"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --simulate and --simulate=report, unless they are there."""
    group = parser.getgroup(NAME, "Triton without a GPU")
    if group.options:
        return
    options = {"--simulate": FAIL, "--simulate=report": REPORT}  # not nargs="?", which would take a file's name
    texts = "run Triton kernels in the simulator", "likewise; what they do wrong is told at the end, and fails no test"
    for (option, how), text in zip(options.items(), texts, strict=True):
        group.addoption(option, dest="simulate", action="store_const", const=how, help=text)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    """Install the simulator, and load conftest files in it."""
    with begin(early_config).watching() as part:
        yield
    if found := part.found():
        raise pytest.UsageError("\n".join(found))


def pytest_configure(config: pytest.Config) -> None:
    """Begin where a conftest file asks for the plugin, which is loaded before."""
    begin(config)


def fetch_triton() -> None:
    """Have Triton's files fetched where they are missing."""
    try:
        kept_triton.fetch_if_missing()
    except kept_triton.NotFetched as error:
        raise pytest.UsageError(str(error)) from None


def begin(config: pytest.Config, leaves_alone: Callable[[pytest.Item], bool] | None = None) -> "Simulated":
    """Install the simulator for a run of pytest, once; tests that it `leaves_alone` run as without it."""
    fetch_triton()
    try:
        install()
    except RuntimeError as error:
        raise pytest.UsageError(f"the simulator cannot begin here: {error}") from None
    from assignment.simulator.tests_run import Simulated  # loads Triton

    simulated: Simulated | None = config.pluginmanager.get_plugin(NAME)
    if simulated is None:
        simulated = Simulated(config.known_args_namespace.simulate == REPORT)
        config.pluginmanager.register(simulated, NAME)
    if leaves_alone:
        simulated.leaves_alone = leaves_alone
    return simulated
