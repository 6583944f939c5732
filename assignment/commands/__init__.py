"""The command line: what `grade.py` can be asked for, and what it says."""
