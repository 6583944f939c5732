"""From the cases of checks to a report, in one way for all who tell of them.

checks.py     which checks there are
where.py      where a student finds what a check is about
practice.py   which checks are beside the points, and when they are graded
finding.py    what is wrong with a case, and what that may come from
case.py       the outcome of a case
search.py     what may explain the wrong results of a run; diagnosis/ knows how
agree.py      which of that is told: the checks of a function agree
score.py      what a check earns
reporting.py  what a report tells of each check
entries.py    the report's form
causes.py     which failed checks of a report have one cause
"""
