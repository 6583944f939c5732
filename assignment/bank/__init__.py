"""Submissions whose verdict is known, which test the tests; staff's alone.

operators/NAME/  the solution, planted bugs and what they edit, right variants, cheats, and peers too new for students;
                 edits.py says how a bug is written
cheats/          hostile submissions, by class
run/             has them graded, and measures the grader: `python -m assignment.bank --help`
bugs.py          gathers the planted bugs, corpus.py all submissions
rules.txt        edits of the machinery that let cheats gain, accusations.txt those that mark right code down
results.md       what came of them, written by `python -m assignment.bank grade`
tricks.md        where the ways of cheating are known from
"""
