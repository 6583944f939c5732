"""The door: what a test can ask of a submission, whoever answers. No test imports the submission itself."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

Results: TypeAlias = Tensor | tuple[Tensor, ...]


@dataclass(frozen=True)
class Costs:
    """What one call moved, by position of its inputs and of its results; kernels and PyTorch's operations together."""

    results: Results
    read: list[int]  # bytes read of each input, and of copies of it
    tile_rows: list[int]  # the most rows of one batch of each input that one load of a kernel touched
    written: list[int]  # bytes written to each result, and to what it was copied from
    beside: int  # all bytes that are read and written, but those of `read` and `written`


@dataclass(frozen=True)
class Links:
    """What calls on several ranks moved between them, in bytes by the rank that they come from and that they go to.

    Integers are not counted: they are signals.
    """

    results: list[list[Results]]  # by call and rank
    distinct: list[list[int]]  # bytes of distinct elements in each launch, of all launches together
    requested: list[list[int]]  # bytes as often as programs asked for them


@dataclass(frozen=True)
class Returned:
    """What one operator of a call returns: its schema, such as "cs336::rmsnorm(Tensor x, …) -> Tensor", and forms."""

    schema: str
    forms: Sequence[Sequence[Any]]  # dtype, sizes and strides
    place: str  # of the line that calls it


class Run(Protocol):
    """The `run` fixture: run("rmsnorm_forward", x, weight, eps=1e-5). What goes wrong in a call fails the test."""

    @property
    def memory_bytes(self) -> int:
        """What a submission can address: a view may reach over most of it."""

    def __call__(self, function: str, *tensors: Tensor, **options: Any) -> Results:
        """Return the result of function(*tensors, **options)."""

    def on_smallest_gpu(self) -> None:
        """Let host code hear of a GPU with few multiprocessors from now on."""

    def rounds(
        self, function: str, build: Callable[[int], Sequence[Tensor]], first: int, tile: int, **options: Any
    ) -> int:
        """Return how long inputs must be for a call's programs to go several rounds; 0 where the grid grows with them.

        A grid that is capped leaves several tiles to each program, in a loop. Where the cap is the GPU's, calls from
        now on see a GPU with few multiprocessors.

        Args:
            build: makes inputs of a length; calls from this one, `first`, on are recorded, and no kernel runs.
            tile: how much of the length one tile may be.
        """

    def raises(self, expected: type[Exception], function: str, *tensors: Tensor, **options: Any) -> None:
        """Assert that the call raises `expected`, outside of any kernel."""

    def warn_unless(
        self, is_right: Callable[[Results], None], says: str, function: str, *tensors: Tensor, **options: Any
    ) -> None:
        """Warn, at no cost of points, if a call has no results, or `is_right` raises Mismatch of them."""

    def again(
        self, function: str, first: Sequence[Tensor], second: Sequence[Tensor], **options: Any
    ) -> tuple[Results, Results]:
        """Return the results for `first` and, after its tensors were overwritten in place, for `second`.

        The first results are read after the second call. The test fails where a call wrote to its inputs, or returned
        memory of an input or of the earlier result.
        """

    def gradients(
        self,
        function: str,
        *tensors: Tensor,
        grad: Tensor | None = None,
        wrt: Sequence[int] | None = None,
        times: int = 1,
        interleaved: bool = False,
        split: Sequence[int] = (),
        options: dict[str, Any] | None = None,
    ) -> list[tuple[Tensor, ...]]:
        """Return the gradients for the tensors numbered in wrt (default: all), asked for `times` times.

        grad is the gradient of the result; without it that of its sum is taken. Interleaved, the function is called
        once more, on other values and with its switches flipped, before the gradients are asked for. With `split`, the
        tensors numbered there are halved along their first dimension, and two calls in one graph get a half each.
        """

    def advise(self, function: str, script: str) -> None:
        """Tell what `advice(function)` of a script returns, at no cost of points; function(name) finds a function.

        It runs where the submission's code runs, in the simulator and with torch.compile.
        """

    def inferred(self, function: str, *tensors: Tensor, **options: Any) -> Results:
        """Return the result of a call under torch.no_grad() with inputs that want gradients: it has no graph."""

    def ranks(self, function: str, *calls: Sequence[Sequence[Tensor]], **options: Any) -> list[list[Results]]:
        """Return the results of calls on the same buffers, by call and rank: run.ranks(f, call)[0][rank].

        Each rank is recorded in a process of its own; the kernels of all ranks run together, of each launch as many
        programs as a GPU holds. A function gets the
        options `rank` and `call`, from 1, beside those given.

        Args:
            calls: for each call the inputs of each rank, in the order of the function's and without its tables, which
                are filled in. Those of the heap are made once: of later calls they are left alone. What a floating
                heap tensor holds before the first call is undefined, an integer one has the values given.
        """

    def links(self, function: str, *calls: Sequence[Sequence[Tensor]], **options: Any) -> Links:
        """Return what such calls move between ranks, counted in the simulator, beside their results."""

    def traced(self, function: str, *tensors: Tensor, **options: Any) -> list[tuple[Returned, Returned]]:
        """Return what each operator of torch.library returns in a call and its backward pass, with data and without.

        Without data the call is made on fake tensors, as a compiler does it; a launch there fails the test.
        """

    def kept_bytes(self, function: str, *tensors: Tensor, **options: Any) -> tuple[int, tuple[Tensor, ...]]:
        """Return the memory that a differentiable call holds on to, and the gradients of its sum.

        Inputs and result are not counted.
        """

    def costs(self, function: str, *tensors: Tensor, **options: Any) -> Costs:
        """Return what the call moves, counted in the simulator."""

    def largest(self, function: str, *tensors: Tensor, **options: Any) -> tuple[Results, int]:
        """Return the results, and the number of elements of the largest tensor made during the call."""

    def compiled(
        self,
        function: str,
        *tensors: Tensor,
        right: Callable[..., None] = ...,
        targets: Sequence[str] = ...,
        **options: Any,
    ) -> list[str]:
        """Return what keeps the kernels of a call from being compiled, or from fitting, on each target; a text each.

        Kernels are compiled of calls whose results are right: `right` raises something if they are not.
        """


class Speed(Protocol):
    """The `speed` fixture: the function against a peer, on a GPU and in the same minutes."""

    def __call__(
        self, function: str, shape: Sequence[int], dtype: torch.dtype, against: str, reach: float, **options: Any
    ) -> None:
        """Assert that the function is right, its own work, and `reach` times as fast as the peer."""

    def memory(self, function: str, shape: Sequence[int], dtype: torch.dtype, **options: Any) -> None:
        """Assert that a call makes no matrix of all scores: it has no room for one beside its results."""
