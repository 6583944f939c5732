"""Errors of a GPU that stick: after an illegal access every later call of the process fails with the first one's error.

Such a process must end. By its type or text an error does not say whether it sticks, and a kernel's own may come later
than the call that launched it; CUDA says so when it is asked to finish what was begun.
"""

import torch

is_initialized, synchronize = torch.cuda.is_initialized, torch.cuda.synchronize  # as they are before a submission


def error() -> Exception | None:
    """What CUDA says each time that it is asked; None where it is well, or has never been used."""
    if not is_initialized():
        return None
    try:
        synchronize()
    except Exception as first:
        try:
            synchronize()
        except Exception:
            return first
    return None
