"""What naive.py says, compiled by torch.compile."""

import torch

from . import naive


def __getattr__(name):
    function = torch.compile(getattr(naive, name), dynamic=None)  # for every size of its own it would take seconds
    globals()[name] = function
    return function
