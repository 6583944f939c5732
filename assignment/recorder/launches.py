"""Launches, recorded instead of made: the kernel, the grid, and the argument for each parameter.

An autotuned kernel runs its hooks and its first configuration, once as a tuner's trial would and
then for good, and records all configurations that are left after pruning: any of them may be chosen
on a GPU.
"""

import operator
import struct
import threading
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from triton import Config

from assignment.protocol.messages import Value
from assignment.protocol.program import Arguments, Launch, drawn, given
from assignment.pytorch_private import FakeTensor, has_storage
from assignment.simulator import dtypes
from assignment.simulator.autotune import key_of
from assignment.simulator.compiled import CompiledStandIn
from assignment.simulator.kernel_values import Grid, LaunchArgument, grid_sizes
from assignment.simulator.triton_private import (
    Autotuner,
    JITCallable,
    JITFunction,
    KernelParam,
    NullAllocator,
    TensorDescriptor,
    TensorWrapper,
    allocator,
)
from assignment.whose import theirs

from .kernels import Described, advice, kind_of
from .own_faults import noted
from .tape import Tape
from .wanted import HeardOf, Wanted

MIN_INT, MAX_INT = -(2**63), 2**64 - 1  # of an argument
FLOATS = ("fp16", "bf16", "fp32", "fp64")  # how an annotation may fix a parameter's type
MAX_DEPTH = 8  # of nested arguments
# options of a launch, beside the kernel's parameters
_OPTIONS = """
num_warps num_stages num_ctas maxnreg debug enable_fp_fusion launch_cooperative_grid launch_pdl ir_override warp_size
sanitize_overflow default_dot_input_precision arch allowed_dot_input_precisions max_num_imprecise_acc_default
supported_fp8_dtypes extern_libs deprecated_fp8_dot_operand_dtypes backend_name cluster_dims ptx_version ptx_options
instrumentation_mode waves_per_eu matrix_instr_nonkdim kpack
"""
OPTIONS = frozenset(_OPTIONS.split())
WITHOUT_DATA = (
    "got one without data: launch within an operator's body alone, not in its fake implementation or gradient"
)


class _TunedInThread(threading.local):
    """The configurations of the autotuned kernel that this thread is launching; None if it is not tuned."""

    alternatives: list[Arguments] | None = None


class Launcher:
    """Records launches on the tape."""

    def __init__(self, tape: Tape, kernels: Described) -> None:
        self._tape, self._kernels, self.faults = tape, kernels, tape.faults
        self._of_thread = _TunedInThread()
        self.gpu = HeardOf(tape, kernels)
        self._configurations: int | list[int] = 0
        self._n_tuned = 0  # launches of autotuned kernels in this call
        self._drawn: int | None = None

    def install(self) -> None:
        """Replace how Triton launches and tunes kernels, for the rest of the process."""
        launcher = self
        JITFunction.run = lambda kernel, /, *args, **kwargs: launcher.run(kernel, *args, **kwargs)
        Autotuner.run = lambda tuner, /, *args, **kwargs: launcher.tune(tuner, *args, **kwargs)

    def choose(self, configurations: int | list[int], drawn: int | None = None) -> None:
        """Begin a call: set an autotuned kernel's configuration, for all launches or for each, or what draws it."""
        self._configurations, self._n_tuned, self._drawn = configurations, 0, drawn

    def _chosen(self, alternatives: list[Arguments], names: Sequence[str]) -> int:
        """Return the number of one of the configurations of a kernel with parameters of these names."""
        chosen, at, n = self._configurations, self._n_tuned, len(alternatives)
        self._n_tuned += n > 1
        if self._drawn is not None:
            return drawn(self._drawn, [given(configuration, names) for configuration in alternatives])
        number = chosen if isinstance(chosen, int) else chosen[at] if at < len(chosen) else 0
        return number % n

    @noted
    def run(
        self, kernel: JITFunction, /, *args: LaunchArgument, grid: Grid, warmup: bool, **kwargs: LaunchArgument
    ) -> CompiledStandIn:
        """Record `kernel[grid](*args, **kwargs)`, or `kernel.warmup(...)`, launchable later."""
        for hook in kernel.pre_run_hooks:
            theirs(hook, *args, **kwargs)
        values = self._bind(kernel, args, kwargs)
        with self._tape.lock:
            try:
                described = self._described(kernel, values, kwargs)
            except (TypeError, ValueError):
                if not warmup:
                    raise
                described = None  # of dtypes in place of tensors
            if described and not warmup:
                self._note(kernel, grid_sizes(grid, values), *described)
        wanted = Wanted(self.gpu, kernel, described)
        return CompiledStandIn(lambda later, *given: self._later(kernel, later, given, kwargs), wanted)

    def _later(self, kernel: JITFunction, grid: Grid, args: tuple, options: dict[str, LaunchArgument]) -> None:
        left = {name: value for name, value in options.items() if name not in kernel.arg_names[: len(args)]}
        values = self._bind(kernel, args, left)
        with self._tape.lock:
            self._note(kernel, grid_sizes(grid, values), *self._described(kernel, values, left))

    def _bind(self, kernel: JITFunction, args: tuple, kwargs: dict[str, LaunchArgument]) -> dict[str, LaunchArgument]:
        for name in kwargs:
            if name not in kernel.arg_names and name not in OPTIONS:
                raise KeyError(f"Keyword argument {name} was specified but unrecognised")
        own = {name: value for name, value in kwargs.items() if name in kernel.arg_names}
        try:
            bound = theirs(kernel.signature.bind, *args, **own)
        except TypeError as error:
            raise TypeError(f"{error}{_given(kernel.arg_names, len(args))}") from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def _note(self, kernel: JITFunction, sizes: list[int], arguments: Arguments, options: Arguments) -> None:
        number = self._kernels.number(kernel)
        has_allocator = not isinstance(allocator(), NullAllocator)
        described = arguments, options, self._of_thread.alternatives, has_allocator
        self._tape.step(Launch(number, sizes, *described, self._tape.line()))

    def _described(
        self, kernel: JITFunction, values: dict[str, LaunchArgument], kwargs: dict[str, LaunchArgument]
    ) -> tuple[Arguments, Arguments]:
        """Return the arguments and the options of a launch as JSON."""
        parameters = {param.name: param for param in kernel.params}
        options = {name: self.encode(name, value) for name, value in kwargs.items() if name not in parameters}
        return {name: self._argument(parameters[name], value) for name, value in values.items()}, options

    def _argument(self, parameter: KernelParam, value: LaunchArgument) -> Value:
        """Return what a parameter gets as JSON; raises TypeError where Triton's launcher would raise."""
        if parameter.is_constexpr:
            return self.encode(parameter.name, value)
        if parameter.annotation_type in FLOATS:
            value = _as_float(parameter.name, value)
        _expect_launchable(parameter.name, value)
        return self.encode(parameter.name, value)

    def encode(self, name: str, value: LaunchArgument, depth: int = 0) -> Value:
        """Return an argument of a launch as JSON; raises TypeError if a kernel cannot take it."""
        if depth > MAX_DEPTH:
            raise TypeError(f"argument {name} is nested deeper than {MAX_DEPTH} tuples: pass its parts one by one")
        if isinstance(value, torch.Tensor):
            return {"t": self._pointer(name, value)}
        if isinstance(value, tl.constexpr):
            return {"constexpr": self.encode(name, value.value, depth + 1)}
        if isinstance(value, TensorDescriptor):
            return self._descriptor(name, value)
        if isinstance(value, TensorWrapper):  # of triton.reinterpret
            try:
                return {"t": self._pointer(name, value.base), "as": dtypes.triton_name(value.dtype)}
            except KeyError:
                said = f"argument {name}: Triton has no type {value.dtype}"
                raise TypeError(f"{said}: pass triton.reinterpret a dtype, such as tl.float16") from None
        if isinstance(value, tuple):
            items = [self.encode(name, item, depth + 1) for item in value]
            fields = getattr(value, "_fields", None)
            if fields is None:
                return {"tuple": items}
            names: list[Value] = theirs(list, theirs(map, str, fields))
            return {"namedtuple": {"name": type(value).__name__, "fields": names}, "values": items}
        return self._kernels.value(value)

    def _pointer(self, name: str, tensor: torch.Tensor) -> int:
        if isinstance(tensor, FakeTensor):
            raise TypeError(f"argument {name}: a kernel needs the memory of a tensor, {WITHOUT_DATA}")
        if not isinstance(tensor, torch.Tensor) or not has_storage(tensor):
            raise TypeError(f"argument {name}: a kernel needs the memory of a tensor, got a {kind_of(type(tensor))}")
        if self._tape.is_strict and not self._tape.is_on_gpu(tensor):
            raise ValueError(
                f"Pointer argument {name} cannot be accessed from Triton (cpu tensor?): "
                "make the tensor where the inputs are, for example torch.empty(..., device=x.device)"
            )
        return self._tape.view(tensor)

    def _descriptor(self, name: str, value: TensorDescriptor) -> Value:
        return {
            "descriptor": self._pointer(name, value.base),
            "shape": _integers(value, "shape"),
            "strides": _integers(value, "strides"),
            "block": _integers(value, "block_shape"),
            "padding": str(value.padding),
            **({"round_to_tf32": True} if getattr(value, "round_f32_to_tf32", False) else {}),
        }

    @noted
    def tune(self, tuner: Autotuner, /, *args: LaunchArgument, **kwargs: LaunchArgument) -> CompiledStandIn:
        """Record the launch of an autotuned kernel; a new key runs it once more, as a trial."""
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        try:
            is_choice = theirs(len, tuner.configs) > 1
            configs = theirs(list, (theirs(tuner.prune_configs, kwargs) if is_choice else tuner.configs) or ())
            for config in configs:
                if not isinstance(config, Config) or not isinstance(config.kwargs, dict):
                    raise TypeError(f"expected configurations made by triton.Config of a dict, got {config!r}")
                if conflicts := kwargs.keys() & config.kwargs.keys():
                    raise ValueError(f"Conflicting meta-parameters: {', '.join(sorted(conflicts))}")
                if twice := sorted(kwargs.keys() & config.all_kwargs().keys()):  # as Python says it of Triton's call
                    said = f"{tuner.base_fn.__name__} got multiple values for keyword argument {twice[0]!r}"
                    raise TypeError(f"{said}: its configurations have it; leave it out of the launch")
            if not configs:
                raise ValueError(f"no configuration of {tuner.base_fn.__name__} is left after pruning")
            alternatives = [{name: self.encode(name, x) for name, x in one.all_kwargs().items()} for one in configs]
            tuner.best_config = config = configs[self._chosen(alternatives, tuner.arg_names)]
            self._of_thread.alternatives = alternatives
            if is_choice:
                self._trial(tuner, config, args, kwargs)
            values = {**tuner.nargs, **kwargs, **config.all_kwargs()}
            if config.pre_hook is not None:
                theirs(config.pre_hook, values)
            return theirs(tuner.fn.run, *args, **kwargs, **config.all_kwargs())
        finally:
            tuner.nargs, self._of_thread.alternatives = None, None

    def _trial(
        self,
        tuner: Autotuner,
        config: triton.Config,
        args: tuple[LaunchArgument, ...],
        kwargs: dict[str, LaunchArgument],
    ) -> None:
        """Run once as the tuner's benchmark does, under the hooks that make trial runs harmless."""
        key = theirs(key_of, tuner, kwargs)
        if theirs(operator.contains, tuner.cache, key):
            return
        values = {**tuner.nargs, **kwargs, **config.all_kwargs()}
        if config.pre_hook:
            theirs(config.pre_hook, values)
        theirs(tuner.pre_hook, values)
        theirs(tuner.fn.run, *args, **kwargs, **config.all_kwargs())
        theirs(tuner.post_hook, values, exception=None)
        tuner.cache[key] = config
        theirs(tuner.pre_hook, {**tuner.nargs, **kwargs, **config.all_kwargs()}, reset_only=True)


def _integers(descriptor: TensorDescriptor, name: str) -> list[Value]:
    return [*theirs(list, theirs(map, int, theirs(getattr, descriptor, name)))]


def _given(names: Sequence[str], n_given: int) -> str:
    """Return how many parameters a launch fills by position, and up to which: one that is left out moves the others."""
    last = f", the last for {names[n_given - 1]}" if 0 < n_given <= len(names) else ""
    return f": the kernel has {len(names)} parameters, the launch passes {n_given} by position{last}"


def _as_float(name: str, value: LaunchArgument) -> float:
    """Return what a parameter that is annotated as a float gets: Triton's launcher asks no more of it."""
    try:
        return struct.unpack("d", struct.pack("d", value))[0]
    except (struct.error, TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise TypeError(f"argument {name} is annotated as a float: got a {kind_of(type(value))}") from error


def _expect_launchable(name: str, value: LaunchArgument) -> None:
    """Raise TypeError or OverflowError for what Triton's launcher does not take but as a tl.constexpr."""
    match value:
        case tuple():
            for item in value:
                _expect_launchable(name, item)
        case bool() | float() | None | torch.Tensor() | TensorWrapper() | TensorDescriptor() | tl.constexpr():
            pass
        case int():
            if not MIN_INT <= int.__int__(value) <= MAX_INT:
                raise OverflowError(f"argument {name} does not fit in 64 bits: got {value}")
        case JITCallable():
            pass
        case str() | torch.dtype() | tl.dtype():
            raise TypeError(
                f"argument {name}: Triton takes a {kind_of(type(value))} as a constant alone: "
                f"write `{name}: tl.constexpr` in the kernel"
            )
        case _:
            raise TypeError(f"argument {name}: Triton does not take a {kind_of(type(value))}: {advice(value)}")
