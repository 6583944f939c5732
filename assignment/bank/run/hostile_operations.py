"""Call every operation that the player plays with hostile arguments, in memory between guard pages.

`python -m assignment.bank hostile_operations --seconds 3600`: an operation that reads or writes outside of its
tensors ends a child process, which is told with the call that did it. What the player refuses before it calls an
operation is refused here too. Results lie in the heap, whose ends glibc checks.
"""

import argparse
import contextlib
import ctypes
import mmap
import os
import random
import resource
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

from assignment.player import misuse, operations
from assignment.pytorch_private import Argument, OpOverload, operation_names

HEAP_CHECK = {"LD_PRELOAD": "libc_malloc_debug.so.0", "MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "90"}
PAGE = mmap.PAGESIZE
MAX_CALL_S = 20  # of a child: what takes longer is left, it is no access out of bounds
MEMORY = 2 << 30  # bytes of address space beside what a child begins with
CALLS = 60  # in one child
DTYPES = (
    torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64,
    torch.int64, torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool,
)  # fmt: skip
INTEGERS = (0, 0, 1, 1, 2, 3, -1, -2, 5, 100, -100, 2**31 - 1, -(2**31), 2**62, -(2**63))
NUMBERS = (0.0, 1.0, -1.5, 3.0, float("inf"), float("nan"), 1e30, -1e30, 7, -3, 2**62, True)
TEXTS = ("sum", "mean", "add", "multiply", "prod", "amax", "min", "max", "none", "floor", "trunc", "linear", "tanh")


def overloads() -> Iterator[OpOverload]:
    """Yield every overload that a program may name; what goes along lists is played on each of their elements."""
    for name in sorted(operation_names()):
        found = operations.find(name)
        if found and not operations.each_of(found):
            yield found


class Arena:
    """Pages with a guard page at each end, reused from call to call."""

    def __init__(self, n_pages: int = 48) -> None:
        self._memory = mmap.mmap(-1, (2 * n_pages + 1) * PAGE)
        self._start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._n, self._next = n_pages, 0
        libc = ctypes.CDLL(None, use_errno=True)
        for page in range(n_pages + 1):
            place = ctypes.c_void_p(self._start + 2 * page * PAGE)
            if libc.mprotect(place, ctypes.c_size_t(PAGE), 0):
                raise OSError(ctypes.get_errno(), "mprotect")

    def begin(self) -> None:
        self._next = 0

    def take(self, nbytes: int, at_the_end: bool) -> torch.Tensor:
        """Return bytes that lie at the beginning or at the end of pages of their own."""
        page, self._next = self._next % self._n, self._next + 1
        start = self._start + (2 * page + 1) * PAGE + (PAGE - nbytes if at_the_end else 0)
        return torch.frombuffer((ctypes.c_char * nbytes).from_address(start), dtype=torch.uint8)


class Maker:
    """Draws the arguments of calls."""

    def __init__(self, seed: int) -> None:
        self._draw, self._arena = random.Random(seed), Arena()

    def arguments(self, func: OpOverload) -> tuple[list[Argument], dict[str, Argument]]:
        self._arena.begin()
        one = [self._draw.randint(0, 4) or 3 for _ in range(self._draw.randint(0, 3))]
        self._shapes = [one, one, one, [1, *one], one[:-1], [self._draw.randint(0, 5)], []]
        self._dtypes = [self._draw.choice(DTYPES), self._draw.choice(DTYPES)]
        args, kwargs = [], {}
        for argument in func._schema.arguments:
            value = self._value(str(argument.type), argument)
            if argument.kwarg_only:
                kwargs[argument.name] = value
            else:
                args.append(value)
        return args, kwargs

    def _value(self, kind: str, argument: torch.Argument) -> Argument:
        draw = self._draw
        if argument.has_default_value() and draw.random() < 0.4:
            return argument.default_value
        if kind.startswith("Optional["):
            return None if draw.random() < 0.4 else self._value(kind[9:-1], argument)
        if kind.startswith("List["):
            return [self._value(kind[5:-1], argument) for _ in range(draw.randint(0, 3))]
        match kind:
            case "Tensor":
                return self._tensor(argument.name)
            case "int" | "SymInt":
                return None if argument.name == "memory_format" else self._integer(argument.name)
            case "number" | "float":
                return draw.choice(NUMBERS)
            case "bool":
                return draw.random() < 0.5
            case "str":
                return draw.choice(TEXTS)
        return None

    def _integer(self, name: str) -> int | torch.dtype:
        if name == "dtype":
            return self._draw.choice(DTYPES)
        return self._draw.choice((0, 1, 2, 3, 4)) if self._draw.random() < 0.6 else self._draw.choice(INTEGERS)

    def _tensor(self, name: str) -> torch.Tensor:
        draw = self._draw
        dtype = draw.choice(self._dtypes) if draw.random() < 0.85 else draw.choice(DTYPES)
        if name in ("index", "indices", "repeats", "lengths", "offsets") and draw.random() < 0.8:
            dtype = torch.int64
        if name in ("mask", "condition") and draw.random() < 0.8:
            dtype = torch.bool
        shape = list(draw.choice(self._shapes))
        strides, extent = self._strides(shape)
        offset = draw.choice((0, 0, 1, 3))
        n_elements = offset + extent
        raw = self._arena.take(max(n_elements, 1) * dtype.itemsize, draw.random() < 0.7)
        self._fill(raw, dtype)
        return raw.view(dtype).as_strided(shape, strides, offset)

    def _strides(self, shape: list[int]) -> tuple[list[int], int]:
        """Return strides, and how many elements they reach over."""
        order = list(range(len(shape)))
        if self._draw.random() < 0.4:
            self._draw.shuffle(order)
        strides, step = [0] * len(shape), 1
        for dim in reversed(order):
            strides[dim] = 0 if self._draw.random() < 0.08 else step
            step *= max(shape[dim], 1) * self._draw.choice((1, 1, 1, 2))
        last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True) if size)
        return strides, last + 1

    def _fill(self, raw: torch.Tensor, dtype: torch.dtype) -> None:
        draw, typed = self._draw, raw.view(dtype)
        if dtype.is_floating_point or dtype.is_complex:
            typed.copy_(torch.tensor([draw.choice(NUMBERS[:8]) for _ in range(typed.numel())]))
        elif dtype == torch.bool:
            typed.copy_(torch.tensor([draw.random() < 0.5 for _ in range(typed.numel())]))
        else:
            limits = torch.iinfo(dtype)
            known = INTEGERS if draw.random() < 0.6 else (0, 0, 1, 1, 2, 3)
            kept = [value for value in known if limits.min <= value <= limits.max]
            typed.copy_(torch.tensor([draw.choice(kept) for _ in range(typed.numel())], dtype=dtype))


def call(func: OpOverload, args: list[Argument], kwargs: dict[str, Argument]) -> None:
    """Call an operation as the player does, or leave it where the player would not call it."""
    with contextlib.suppress(Exception):
        if not misuse.misplaced(func, args, kwargs) and not misuse.out_of_range(func, args, kwargs):
            misuse.written_by(func, args, kwargs)
            operations.call(func, args, kwargs)


def told(args: Argument | dict[str, Argument]) -> str:
    """Return arguments in words."""
    if isinstance(args, torch.Tensor):
        values = args.flatten()[:8].tolist()
        return f"{args.dtype}{list(args.shape)} strides {args.stride()} = {values}"
    if isinstance(args, dict):
        return ", ".join(f"{name}={told(value)}" for name, value in args.items())
    return "[" + ", ".join(map(told, args)) + "]" if isinstance(args, list) else repr(args)


def run(func: OpOverload, seed: int, n_calls: int) -> str:
    """Make calls in a child process; returns the one that ended it, in words, or ""."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        signal.setitimer(signal.ITIMER_REAL, MAX_CALL_S)
        signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * PAGE + MEMORY,) * 2)
        make = Maker(seed)
        for _ in range(n_calls):
            args, kwargs = make.arguments(func)
            os.write(write, f"{told(args)} {told(kwargs)}"[:2000].encode() + b"\0")
            call(func, args, kwargs)
        os._exit(0)
    os.close(write)
    heard = b""
    while part := os.read(read, 1 << 16):
        heard = (heard + part)[-8192:]
    os.close(read)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) not in (signal.SIGALRM, signal.SIGKILL):
        last = heard.rstrip(b"\0").rsplit(b"\0", 1)[-1].decode(errors="replace")
        return f"{func.name()}: {signal.Signals(os.WTERMSIG(status)).name} at seed {seed}: {last}"
    return ""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (default: a minute)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", metavar="NAME", help="operations with this in their name")


def main(seconds: float, seed: int, only: str) -> int:
    if "MALLOC_CHECK_" not in os.environ:
        os.execve(
            sys.executable, [sys.executable, "-m", "assignment.bank", *sys.argv[1:]], {**os.environ, **HEAP_CHECK}
        )
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    every = [func for func in overloads() if only in func.name()]
    end, n_rounds = time.monotonic() + seconds, 0
    found: dict[str, str] = {}
    while time.monotonic() < end:
        for func in every:
            if time.monotonic() >= end:
                break
            if said := run(func, seed + n_rounds, CALLS):
                found.setdefault(func.name(), said)
        else:
            n_rounds += 1
    print(*found.values(), sep="\n")
    print(f"{len(every)} operations, {n_rounds} whole rounds of {CALLS} calls, {len(found)} operations out of bounds")
    return 1 if found else 0
