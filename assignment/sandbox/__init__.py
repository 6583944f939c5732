"""Sandboxed processes: which rungs work here, what each role may import, how to talk to them."""
