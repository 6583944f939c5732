"""What the operator's naive.py says, compiled by torch.compile."""

import importlib

import torch


def __getattr__(name):
    naive = importlib.import_module(".naive", __package__)
    function = globals()[name] = torch.compile(getattr(naive, name), dynamic=False)
    return function
