"""Launches: binds the arguments as Triton's launcher does and runs the kernel once per program of the grid.

What a kernel raises leaves the launch as it is, with the student's file and line in its traceback.
"""

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import KernelParam

from .arguments import typed
from .language import builder
from .rewrite import rewrite

_MAX_GRID = (2**31 - 1, 65535, 65535)
_one_at_a_time = threading.Lock()  # the builder holds the program id of the kernel that runs


def install() -> None:
    """Replace how Triton's interpreter runs kernels and device functions."""
    InterpretedFunction.run = run
    InterpretedFunction.__call__ = call


def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
    """`kernel[grid](*args, **kwargs)`."""
    for hook in self.pre_run_hooks:
        hook(*args, **kwargs)
    values = _bind(self, args, kwargs)
    if warmup:
        return
    programs = _programs(grid, values)
    kernel, params = _rewritten(self), _params(self)
    with _one_at_a_time, np.errstate(all="ignore"):
        arguments = {name: typed(value, params[name]) for name, value in values.items()}
        try:
            for builder.grid_idx in programs:
                kernel(**arguments)
        finally:
            builder.grid_idx = None


def call(self: Any, *args: Any, **kwargs: Any) -> Any:
    """A call of one @triton.jit function by another."""
    if builder.grid_idx is None:
        raise RuntimeError("Cannot call @triton.jit'd outside of the scope of a kernel")
    return _rewritten(self)(*args, **kwargs)


def _rewritten(self: Any) -> Callable:
    function = self.__dict__.get("_simulated")
    if function is None:
        function = self._simulated = rewrite(self.fn)
    return function


def _params(self: Any) -> dict[str, KernelParam]:
    """The kernel's parameters, with what its decorator says of them."""
    if "_simulated_params" not in self.__dict__:
        unspecialized = self.kwargs.get("do_not_specialize") or ()
        self._simulated_params = {
            name: KernelParam(i, parameter, i in unspecialized or name in unspecialized, False)
            for i, (name, parameter) in enumerate(_signature(self).parameters.items())
        }
    return self._simulated_params


def _signature(self: Any) -> Any:
    import inspect

    return inspect.signature(self.fn)


def _bind(self: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Every parameter's value; launch options such as num_warps are dropped, unknown names refused."""
    for name in kwargs:
        if name not in self.arg_names and not hasattr(builder.options, name):
            raise KeyError(f"Keyword argument {name} was specified but unrecognised")
    bound = _signature(self).bind(*args, **{k: v for k, v in kwargs.items() if k in self.arg_names})
    bound.apply_defaults()
    return bound.arguments


def _programs(grid: Any, values: dict[str, Any]) -> Iterator[tuple[int, int, int]]:
    """The program ids of a grid, x fastest; none if a dimension is zero."""
    if callable(grid):
        grid = grid(values)
    sizes = [size.__index__() for size in (*grid[:3], 1, 1)[:3]]
    for axis, size, limit in zip("xyz", sizes, _MAX_GRID, strict=True):
        if size > limit:
            raise RuntimeError(f"Triton Error [CUDA]: invalid argument: grid {axis} is {size}, at most {limit} allowed")
    builder.grid_dim = (sizes[0], sizes[1], sizes[2])
    ids = itertools.product(*(range(size) for size in reversed(sizes)))
    return ((x, y, z) for z, y, x in ids)
