"""What submissions are compared with: the student's functions, made of what others have written.

This package is run as a submission is, by a worker of its own; flash2__flash_forward_triton is the function of that
name in flash2.py. A function that a module lacks has no such peer, and one whose package is not installed neither.
"""

import importlib


def __getattr__(name):
    peer, separator, function = name.partition("__")
    if not peer or not separator:
        raise AttributeError(name)
    return getattr(importlib.import_module(f"{__name__}.{peer}"), function)
