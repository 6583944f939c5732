"""Launches, in the order of the passes."""

from .backward import backward
from .forward import forward

__all__ = ["backward", "forward"]
