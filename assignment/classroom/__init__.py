"""A class's submissions: graded, reported, reviewed and compared, `python -m assignment.classroom --help`."""

COMMAND = "uv run --extra classroom python -m assignment.classroom"  # as it is to be typed
