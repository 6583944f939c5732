"""What naive.py says, compiled by torch.compile."""

import torch

from . import naive


def __getattr__(name):
    is_attention = name.startswith("flash")  # of which every size would take seconds
    function = torch.compile(getattr(naive, name), dynamic=None if is_attention else False)
    globals()[name] = function  # once
    return function
