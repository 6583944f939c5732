"""Calls functions of the submission: what each kind of request asks."""
