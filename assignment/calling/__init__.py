"""Calls functions of the submission: what each kind of request asks, and whose fault an exception is."""
