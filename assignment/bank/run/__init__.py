"""The commands of `python -m assignment.bank`, and what they share."""
