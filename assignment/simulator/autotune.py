"""Autotuned kernels without timing: the first configuration left after pruning is used.

As on a GPU, the first call with a new key runs the kernel once more than needed, under the hooks
that make trial runs harmless. A kernel that adds to its output without `reset_to_zero` is wrong on
that call, both here and on a GPU.
"""

import triton

from .kernel_values import LaunchArgument
from .triton_private import Autotuner


def install() -> None:
    """Replace the tuner's choice."""
    Autotuner.run = run


def run(self: Autotuner, *args: LaunchArgument, **kwargs: LaunchArgument) -> None:
    """Launch with the chosen configuration."""
    self.nargs = dict(zip(self.arg_names, args, strict=False))
    try:
        config = self.configs[0] if len(self.configs) == 1 else _choose(self, args, kwargs)
        self.best_config = config
        values = {**self.nargs, **kwargs, **config.all_kwargs()}
        if config.pre_hook is not None:
            config.pre_hook(values)
        return self.fn.run(*args, **kwargs, **config.all_kwargs())
    finally:
        self.nargs = None  # it holds on to the tensors


def _choose(self: Autotuner, args: tuple[LaunchArgument, ...], kwargs: dict[str, LaunchArgument]) -> triton.Config:
    """Return the configuration for this key, after a trial run if the key is new."""
    key = key_of(self, kwargs)
    if key not in self.cache:
        config = self.prune_configs(kwargs)[0]
        _trial(self, config, args, kwargs)
        self.cache[key] = config
        self.pre_hook({**self.nargs, **kwargs, **config.all_kwargs()}, reset_only=True)
    return self.cache[key]


def key_of(tuner: Autotuner, kwargs: dict[str, LaunchArgument]) -> tuple:
    """Return what Triton tunes by: the values of the named arguments, and all dtypes."""
    values = {k: v for k, v in {**tuner.nargs, **kwargs}.items() if k in tuner.arg_names}
    named = [values[name] for name in tuner.keys if name in values]
    return (*named, *(str(v.dtype) for v in values.values() if hasattr(v, "dtype")))


def _trial(
    self: Autotuner, config: triton.Config, args: tuple[LaunchArgument, ...], kwargs: dict[str, LaunchArgument]
) -> None:
    """Run the kernel once, as the tuner's benchmark does."""
    conflicts = kwargs.keys() & config.kwargs.keys()
    if conflicts:
        raise ValueError(
            f"Conflicting meta-parameters: {', '.join(conflicts)}."
            " Make sure that you don't re-define auto-tuned symbols."
        )
    values = {**self.nargs, **kwargs, **config.all_kwargs()}
    if config.pre_hook:
        config.pre_hook(values)
    self.pre_hook(values)
    try:
        self.fn.run(*args, **kwargs, **config.all_kwargs())
    except Exception as error:
        self.post_hook(values, exception=error)
        raise
    self.post_hook(values, exception=None)
