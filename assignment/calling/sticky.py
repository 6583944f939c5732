"""Sticky GPU errors: after an illegal access every later call of the process fails, too.

Such a process must end. An error's type or text does not show whether it sticks, and a kernel's
error may come later than the call that launched it; CUDA reports it when asked to synchronize.
"""

import torch

from assignment.whose import theirs

# as they are before a submission
is_initialized, synchronize = torch.cuda.is_initialized, torch.cuda.synchronize


def error() -> Exception | None:
    """Return CUDA's error when it synchronizes; None if it is well, or has not been used."""
    if not is_initialized():
        return None
    try:
        theirs(synchronize)
    except Exception as first:
        try:
            synchronize()
        except Exception:
            return first
    return None
