"""Launches: binds the arguments as Triton's launcher does and runs the kernel once per program.

An exception in a kernel leaves the launch unchanged, with the student's file and line in its
traceback.
"""

import contextlib
import functools
import hashlib
import inspect
import itertools
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import triton.language as tl

from assignment.whose import for_them, theirs

from . import alignment, calls
from .arguments import typed
from .builder import Builder, DoesNotHold
from .calls import Call
from .compiled import CompiledStandIn, CompilersFigures
from .faults import UNSUPPORTED, MemoryFault, Program
from .kernel_values import Grid, KernelValue, LaunchArgument, grid_sizes
from .meeting import MeetingPrograms
from .programs import FirstRace
from .rewrite import follows_hints, may_meet, rewrite, unused_results, waits
from .semantic import builder, semantic
from .triton_private import (
    CompilationError,
    CompileTimeAssertionFailure,
    IncompatibleTypeErrorImpl,
    InterpretedFunction,
    JITFunction,
    KernelParam,
    interpreter,
    knobs,
)
from .variables import explain
from .watch import Watch

# of what a compiled kernel cannot be, while the simulator finds it only when it runs
_REFUSALS = (
    TypeError,
    ValueError,
    NameError,
    AttributeError,
    LookupError,
    AssertionError,
    ArithmeticError,
    SyntaxError,
    IncompatibleTypeErrorImpl,
)
_RANDOM = tl.random.__name__
_N_WARPS = 4  # unless a launch says otherwise
one_at_a_time = threading.Lock()  # the builder holds the program id of the kernel that runs


@dataclass(frozen=True)
class _Kernel:
    """What launches need to know of a @triton.jit function."""

    function: Callable
    signature: inspect.Signature
    params: dict[str, KernelParam]
    waits: bool  # has a `while`, or polls: programs may wait for others
    has_hints: bool
    constants: dict[str, tl.constexpr]  # the globals that it reads, as they were at the first launch


class _Jitted(InterpretedFunction):
    """A kernel, which isinstance() takes for a JITFunction, as host code expects."""

    __class__ = property(lambda self: JITFunction)


def install() -> None:
    """Replace how Triton's interpreter runs kernels and device functions."""
    InterpretedFunction.run = run
    InterpretedFunction.__call__ = call
    interpreter.InterpretedFunction = _Jitted  # of which triton.jit makes one
    JITFunction.run = refuse


def refuse(self: JITFunction, *args: LaunchArgument, **kwargs: LaunchArgument) -> None:
    """Refuse what is compiled even where Triton interprets: Gluon."""
    raise NotImplementedError(f"{self.__name__}, in Gluon, {UNSUPPORTED}")


def run(
    self: InterpretedFunction, *args: LaunchArgument, grid: Grid, warmup: bool, **kwargs: LaunchArgument
) -> CompiledStandIn:
    """Launch: `kernel[grid](*args, **kwargs)`; or, to warm up, look at the arguments alone."""
    for hook in self.pre_run_hooks:
        theirs(hook, *args, **kwargs)
    kernel = _kernel(self)
    values = _bind(kernel, args, kwargs)
    if warmup:
        _set_options(self, kwargs)
        for name, value in values.items():
            typed(value, kernel.params[name], lambda _, tensor: np.uint64(tensor.data_ptr()))
    else:
        x, y, z = grid_sizes(grid, values)
        _run_programs(self, kernel, values, (x, y, z), kwargs)
    options = {name: value for name, value in kwargs.items() if name not in kernel.params}
    again = lambda grid, *given: self.run(*given, grid=grid, warmup=False, **options)  # noqa: E731
    return CompiledStandIn(again, CompilersFigures(self, values, options))


def _run_programs(
    self: InterpretedFunction,
    kernel: _Kernel,
    values: dict[str, LaunchArgument],
    sizes: Program,
    options: dict[str, LaunchArgument],
) -> None:
    call = calls.current()
    if 0 in sizes:
        call.idle.append(f"{self.__name__} was launched with the grid {sizes}, which is 0 programs")
    call.constants.append({})
    watch = Watch(self.__name__, sizes, call)
    with _alone(call), np.errstate(all="ignore", invalid="call", call=watch.makes_nan):
        builder.watch = watch
        watch.record_for(self.fn)
        arguments = _admitted(kernel, values, watch)
        _set_options(self, options)
        builder.grid_dim = sizes
        builder.launched(functools.partial(_is_first, self, arguments, options))
        body = functools.partial(theirs, kernel.function, **arguments)
        ids = _programs(sizes, kernel, call)
        try:
            if call.rank:
                is_whole = bool(options.get("launch_cooperative_grid"))
                call.rank.run(ids, functools.partial(watch.run, body=body), is_whole)
            elif may_meet(self.fn, values.values()):
                MeetingPrograms(watch, body, call, unused_results(self.fn)).run(ids, kernel.waits)
            else:
                _run_each(ids, functools.partial(watch.run, body=body))
            if ids and not watch.has_stored:
                call.idle.append(f"{self.__name__} stores nothing: is its tl.store missing, or masked out everywhere?")
        except MemoryFault as fault:
            call.faults.append(fault)
            raise
        except _REFUSALS as error:
            if isinstance(error, NameError | AttributeError):
                explain(error)
            if call.raises_as_compiler and not isinstance(error, DoesNotHold):
                raise _as_compilers(error).with_traceback(error.__traceback__) from error
            raise
        finally:
            builder.grid_idx = None
            watch.end()
            del builder.watch  # which holds the launch's tensors


def _admitted(kernel: _Kernel, values: dict[str, LaunchArgument], watch: Watch) -> dict[str, KernelValue]:
    """Return the arguments as the kernel gets them."""
    arguments = {name: typed(value, kernel.params[name], watch.admit) for name, value in values.items()}
    builder.__class__ = alignment.Believing if kernel.has_hints else Builder
    if kernel.has_hints:
        semantic.forget_constants()
        for name, value in arguments.items():
            if isinstance(value, tl.tensor):
                param = kernel.params[name]
                is_aligned = not (param.do_not_specialize or param.do_not_specialize_on_alignment)
                alignment.admit(value, is_aligned)
    return arguments


def _alone(call: Call) -> contextlib.AbstractContextManager:
    """Keep other launches out, but for those of other ranks."""
    return contextlib.nullcontext() if call.rank else one_at_a_time


def _as_compilers(error: Exception) -> CompilationError:
    """Return the exception that Triton's compiler raises, where it is not an interpreter's."""
    kind = CompileTimeAssertionFailure if str(error).startswith("tl.static_assert") else CompilationError
    made = type(kind.__name__, (kind,), {"__module__": kind.__module__, "_format_message": lambda self: str(error)})
    return made(None, None, str(error))


def _is_first(self: InterpretedFunction, arguments: Mapping[str, KernelValue], options: dict) -> bool:
    """Return whether the kernel was not launched before with arguments of these types, constants and options."""
    known = self.__dict__.setdefault("_compiled_for", set())
    kinds = (value.type if isinstance(value, tl.tensor) else value for value in arguments.values())
    key = repr((*kinds, *sorted(options.items())))
    return key not in known and not known.add(key)


def _set_options(self: InterpretedFunction, options: dict[str, LaunchArgument]) -> None:
    is_debug = bool(options.get("debug") or self.kwargs.get("debug") or knobs.runtime.debug)
    n_warps, fuses = options.get("num_warps", _N_WARPS), options.get("enable_fp_fusion")
    builder.set_options(is_debug, n_warps, fuses)  # type: ignore[arg-type]


def _run_each(programs: Sequence[Program], run_one: Callable[[Program], None]) -> None:
    faults = FirstRace()
    for builder.grid_idx in programs:
        faults.run(functools.partial(run_one, builder.grid_idx))
    faults.tell()


@for_them
def call(self: InterpretedFunction, *args: KernelValue, **kwargs: KernelValue) -> KernelValue:
    """Call one @triton.jit function from another."""
    if builder.grid_idx is None:
        raise RuntimeError("Cannot call @triton.jit'd outside of the scope of a kernel")
    function, enter = _kernel(self).function, builder.entering
    if self.fn.__module__ != _RANDOM:
        return function(*map(enter, args), **{name: enter(value) for name, value in kwargs.items()})
    with builder.watch.unmoved():
        return function(*map(enter, args), **{name: enter(value) for name, value in kwargs.items()})


def _kernel(self: InterpretedFunction) -> _Kernel:
    """Return the rewritten function; made at the first launch, when the globals it reads exist."""
    notes = calls.current().notes_constants
    made = self.__dict__.setdefault("_simulated", {})  # by whether it notes its constants
    kernel = made.get(notes)
    if kernel is None:
        signature = inspect.signature(self.fn)
        kernel = made[notes] = _Kernel(
            rewrite(self.fn, notes),
            signature,
            _params(signature, self.kwargs),
            waits(self.fn),
            follows_hints(self.fn),
            _constants(self.fn),
        )
    for name, value in kernel.constants.items():
        if (now := self.fn.__globals__.get(name, value)) is not value and getattr(now, "value", now) != value.value:
            raise RuntimeError(
                f"Global variable {name} has changed since we compiled this kernel, from {value} to {now}"
            )
    return kernel


def _constants(fn: Callable) -> dict[str, tl.constexpr]:
    known = {name: fn.__globals__.get(name) for name in fn.__code__.co_names}
    known |= inspect.getclosurevars(fn).nonlocals
    return {name: value for name, value in known.items() if isinstance(value, tl.constexpr)}


def _params(signature: inspect.Signature, options: Mapping[str, Sequence[int | str]]) -> dict[str, KernelParam]:
    left_alone = [options.get(f"do_not_specialize{of}") or () for of in ("", "_on_alignment")]
    return {
        name: KernelParam(i, parameter, *(i in among or name in among for among in left_alone))
        for i, (name, parameter) in enumerate(signature.parameters.items())
    }


def _bind(kernel: _Kernel, args: tuple, kwargs: dict[str, LaunchArgument]) -> dict[str, LaunchArgument]:
    """Return every parameter's value; launch options are dropped, unknown names refused."""
    for name in kwargs:
        if name not in kernel.params and not hasattr(builder.options, name):
            raise KeyError(f"Keyword argument {name} was specified but unrecognised")
    bound = theirs(kernel.signature.bind, *args, **{k: v for k, v in kwargs.items() if k in kernel.params})
    bound.apply_defaults()
    return bound.arguments


def _programs(sizes: Program, kernel: _Kernel, call: Call) -> Sequence[Program]:
    """Return the program ids of a grid; none if a size is zero.

    A GPU promises no order, so here it is shuffled. Programs that wait for others begin x fastest, as
    on a GPU. The order does not reveal the seed.
    """
    ids = [(x, y, z) for z, y, x in itertools.product(*(range(size) for size in reversed(sizes)))]
    call.n_launches += 1
    if not kernel.waits:
        random.Random(hashlib.sha512(f"{call.seed} {call.n_launches}".encode()).digest()).shuffle(ids)
    return ids
