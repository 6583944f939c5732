"""A sandbox of each kind that works here, and a mark for the processes started in it."""

import os
import time

import pytest

from assignment.sandbox import rungs
from assignment.tests.sandbox.boxes import open_box, process_ids, rungs_that_work


@pytest.fixture(scope="module", params=rungs_that_work(rungs.RUNGS))
def box(request):
    with open_box(request.param, "cpu") as opened:
        yield opened


@pytest.fixture(scope="module")
def closed_box(box):
    """A sandbox that hides files, network and processes."""
    if box.rung in rungs.UNSAFE:
        pytest.skip("limits alone hide nothing")
    return box


@pytest.fixture
def marked():
    """An argument for `sleep` by which our processes are told from all others; none is left at the end."""
    seconds = f"{100_000 + os.getpid() % 10_000}.{time.monotonic_ns() % 10**6}"
    yield seconds
    assert not process_ids(seconds)
