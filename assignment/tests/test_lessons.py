"""What a chapter teaches is worth something: its three lessons, each left out of a submission, and what that costs."""

import pytest

from assignment.bank import bugs
from assignment.bank.run import waiting
from assignment.verdict import checks, score

LESSONS = bugs.gathered("bugs", "LESSONS")  # by problem, the names of bugs
LEAST = 0.1  # of the problem's points
EACH = [f"{problem}/{name}" for problem, names in LESSONS.items() for name in names]


def test_each_problem_has_three_lessons_that_are_bugs_of_the_bank():
    assert LESSONS.keys() == checks.problems().keys() - {checks.SPEED}
    assert {len(names) for names in LESSONS.values()} == {3}
    assert {*EACH} <= {bug.name for bug in bugs.all_bugs()}


@pytest.mark.lengthy
@pytest.mark.parametrize("name", EACH)
def test_a_lesson_costs_a_tenth_of_its_problem(name):
    """Graded by all checks but those that compile, of which no lesson is one."""
    (bug,) = (one for one in bugs.all_bugs() if one.name == name)
    own = [check for check in checks.without_a_gpu(checks.declared()) if check.problem == bug.problem]
    results = score.results(waiting.gathered(bug, [one for one in own if "compiles" not in one.name], seed=0))
    lost = {result.check.name: result.check.points - result.score for result in results}
    assert sum(lost.values()) >= LEAST * checks.problems()[bug.problem].points - 1e-9, lost
