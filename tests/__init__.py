"""The specification of the eleven functions, run unchanged by students and by the grader."""
