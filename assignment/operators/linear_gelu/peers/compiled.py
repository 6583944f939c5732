"""What naive.py says, compiled by torch.compile."""

import torch

from . import naive


def __getattr__(name):
    function = globals()[name] = torch.compile(getattr(naive, name), dynamic=False)
    return function
