"""Records launches instead of running them.

An autotuned kernel is recorded with every configuration that is left after pruning: any may be
chosen.
"""

import contextlib
import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import triton

from assignment.protocol.said import Telling
from assignment.simulator.host import Driver
from assignment.simulator.kernel_values import Grid, KernelValue, LaunchArgument
from assignment.simulator.one_gpu import answer_questions
from assignment.simulator.triton_private import Autotuner, CUDAOptions, GPUTarget, JITFunction, driver, knobs

from .targets import Target


class LaunchRefused(Telling):
    """Triton does not accept the arguments or options: on a GPU too, the launch raises."""


@dataclass(frozen=True)
class CompiledLaunch:
    """A kernel as one launch needs it, with all that the compiler asks for."""

    kernel: JITFunction
    target: Target
    signature: dict[str, str]
    constants: dict[tuple[int, ...], KernelValue]
    attributes: dict[tuple[int, ...], list]
    options: CUDAOptions
    config: str = ""  # of an autotuned kernel
    tuning: int = -1  # launches with the same number stand for one another
    played: int = -1  # the number of the launch that was played like this, of its program

    @property
    def form(self) -> str:
        """The same for the same kernel with the same arguments and options on another target."""
        place = self.kernel.fn.__code__.co_filename, self.kernel.fn.__code__.co_firstlineno
        options = self.options.num_warps, self.options.num_stages, self.options.num_ctas
        what = (*place, self.signature, self.constants, self.attributes, options)
        return hashlib.sha256(repr(what).encode()).hexdigest()[:32]

    @property
    def key(self) -> tuple:
        """The same for launches that give the same machine code."""
        what = (self.signature, self.constants, self.attributes, self.options)
        return (id(self.kernel), self.target.name, *map(repr, what))


@dataclass
class Notes:
    """The launches so far, for one target."""

    target: Target
    launches: list[CompiledLaunch] = field(default_factory=list)
    config: str = ""
    tuning: int = -1
    played: int = -1


_noting: list[Notes] = []  # one while launches are recorded, or none
tunings = itertools.count()


def install() -> None:
    """Replace how Triton launches and tunes kernels."""
    JITFunction.run = run
    Autotuner.run = tune


def stand_for(target: Target) -> None:
    """Make this process answer as one with that GPU, to host code and to kernels."""
    answer_questions(target.properties)
    number = target.capability  # Triton keeps what it knows of a kernel apart by device
    driver.set_active(Driver(GPUTarget("cuda", target.capability, 32), target.properties, number))


@contextlib.contextmanager
def recorded(target: Target) -> Iterator[list[CompiledLaunch]]:
    """Record launches inside, for this GPU, in the list."""
    stand_for(target)
    _noting.append(Notes(target))
    try:
        yield _noting[-1].launches
    finally:
        _noting.pop()


@contextlib.contextmanager
def tuned(config: str, tuning: int, played: int = -1) -> Iterator[None]:
    """Mark launches inside as those of an autotuned kernel with this configuration, and as the one that was played."""
    notes = _noting[-1]
    notes.config, notes.tuning, notes.played = config, tuning, played
    try:
        yield
    finally:
        notes.config, notes.tuning, notes.played = "", -1, -1


def run(self: JITFunction, *args: LaunchArgument, grid: Grid, warmup: bool, **kwargs: LaunchArgument) -> None:
    """Record `kernel[grid](*args, **kwargs)`, as far as the compiler is concerned."""
    if not _noting:
        raise RuntimeError(f"{self.__name__} is launched while nothing is being compiled: at import, or in a thread?")
    kwargs["debug"] = kwargs.get("debug", self.debug) or knobs.runtime.debug
    kwargs["instrumentation_mode"] = knobs.compilation.instrumentation_mode
    for hook in self.pre_run_hooks:
        hook(*args, **kwargs)
    *_, backend, bind = self.device_caches[driver.active.get_current_device()]
    try:
        bound, specialization, given = bind(*args, **kwargs)
        options, signature, constants, attributes = self._pack_args(backend, kwargs, bound, specialization, given)
    except Exception as error:
        raise LaunchRefused(f"{type(error).__name__}: {error}") from error
    notes = _noting[-1]
    of_notes = notes.config, notes.tuning, notes.played
    notes.launches.append(CompiledLaunch(self, notes.target, signature, constants, attributes, options, *of_notes))


def tune(self: Autotuner, *args: LaunchArgument, **kwargs: LaunchArgument) -> None:
    """Record the launch of an autotuned kernel, once with each configuration."""
    if not _noting:
        raise RuntimeError(f"{self.base_fn.__name__} is launched while nothing is being compiled")
    self.nargs = dict(zip(self.arg_names, args, strict=False))
    configs = self.prune_configs(kwargs) if len(self.configs) > 1 else self.configs
    notes = _noting[-1]
    notes.tuning = next(tunings)
    try:
        for config in configs:
            if conflicts := kwargs.keys() & config.kwargs.keys():
                raise ValueError(f"both the launch and a configuration to be tuned give {', '.join(sorted(conflicts))}")
            if config.pre_hook:
                config.pre_hook({**self.nargs, **kwargs, **config.all_kwargs()})
            notes.config = described(config)
            self.fn.run(*args, **kwargs, **config.all_kwargs())
    finally:
        self.nargs, notes.tuning, notes.config = None, -1, ""


def described(config: triton.Config) -> str:
    """Return "BLOCK=64, num_warps=4, num_stages=2"."""
    values = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    return ", ".join(f"{name}={value}" for name, value in values.items())
