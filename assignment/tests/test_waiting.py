"""How long a student waits: the command that says so."""

import pytest

from assignment.bank import bugs
from assignment.bank.run import waiting


def test_first_drafts_are_bugs_of_the_bank():
    names = [one.name for one in bugs.all_bugs()]
    drafts = bugs.named("bugs", "FIRST_DRAFTS")
    assert len(drafts) >= 8
    assert drafts <= {*names}


@pytest.mark.slow
def test_a_wait_is_measured(capfd):
    assert waiting.main(["rmsnorm/forward-sum-in-place-of-the-mean"], seeds=1) in (0, 1)
    first, whole, cause = map(float, capfd.readouterr().out.splitlines()[0].split()[1:])
    assert 0 < first < whole
    assert cause < whole


@pytest.mark.parametrize(("waited", "status"), [((1, 5, 1), 0), ((4, 5, 1), 1), ((1, 11, 1), 1), ((1, 5, 6), 1)])
def test_too_long_a_wait_is_an_exit_status(monkeypatch, waited, status):
    monkeypatch.setattr(waiting, "waited_for", lambda bug, seed: waiting.Waited(*waited))
    assert waiting.main([], seeds=1) == status


def test_a_name_that_no_bug_has():
    assert waiting.main(["no such bug"], seeds=1) == 2
