"""A class's submissions: graded, reported, reviewed and compared, `python -m assignment.classroom --help`."""
