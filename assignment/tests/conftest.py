"""What several files of tests begin with."""

import shutil

import pytest

from assignment.tests import chromium
from assignment.tests.graded import REFERENCE
from assignment.tests.pairs import desk


@pytest.fixture(scope="module")
def at():
    """One warm recorder and its player, for one small submission after the other."""
    with desk() as opened:
        yield opened


@pytest.fixture(scope="module")
def browser():
    """A browser; tests that take it are marked by chromium.needed."""
    with chromium.started() as driver:
        yield driver


@pytest.fixture
def submission(tmp_path):
    """A copy of the reference, to be broken."""
    shutil.copytree(REFERENCE / "cs336_kernels", tmp_path / "work" / "cs336_kernels")
    return tmp_path / "work"
