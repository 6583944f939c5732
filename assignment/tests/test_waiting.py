"""How long a student waits: the command that says so."""

import pytest

from assignment.bank import bugs
from assignment.bank.run import waiting


def test_first_drafts_are_bugs_of_the_bank():
    drafts = bugs.first_drafts()
    assert len(drafts) == sum(map(len, bugs.gathered("bugs", "DRAFTS").values())) >= 6
    for draft in drafts:
        assert waiting.check_of(draft).problem == draft.problem


@pytest.mark.slow
@pytest.mark.parametrize("draft", bugs.first_drafts(), ids=lambda one: one.name)
def test_the_cause_of_a_first_draft_is_told(draft, capfd):
    cases = [case for of in waiting.searched(draft, seed=1)[0] for case in of.cases]
    told = [str(hint) + hint.name for case in cases for hint in case.hints or ()]
    assert any(name in hint for name in draft.bug.named for hint in told), told


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
