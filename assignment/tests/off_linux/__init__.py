"""Linux without what is Linux's: grades as on another system, as far as Linux can show that.

    python -m assignment.tests.off_linux

`interpreter` makes a Python that takes the POSIX implementation, as does each that it starts (`taken_away`).
"""
