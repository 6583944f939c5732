"""Processes in sandboxes: which rungs work here, what each role may import, and how the judge talks to them."""
