"""What a compiler is asked: the same for the same launches, and nothing that has to do with others."""

import pytest
import torch

from assignment.judge import excerpt
from assignment.judge.replies import Ok
from assignment.protocol import program as programs
from assignment.tests.pairs import FILE, F, X, desk

G = "weighted_sum_backward"
CODE = """
FACTOR = tl.constexpr(2)

@triton.jit
def _times(x, factor):
    return x * factor * FACTOR

@triton.jit
def _mean(x_ptr, y_ptr, n, SIZE: tl.constexpr, apply: tl.constexpr, kernel: tl.constexpr = 7, t: tl.constexpr = 9):
    at = tl.arange(0, SIZE)
    tl.store(y_ptr + at, apply(tl.load(x_ptr + at, mask=at < n), kernel + t), mask=at < n)

def weighted_sum_forward(x):
    y, z = torch.empty_like(x), x + 1
    _mean[(1,)](z, y, x.numel(), 256, _times)
    return y

def weighted_sum_backward(x):
    return copied(torch.cat([x, x]))
"""


@pytest.fixture(scope="module")
def at():
    with desk() as held:
        yield held


def asked(at, code=CODE, before=(), x=X, **files):
    """The request and the programs for a call of F after others, with other files beside its own."""
    at.take(code)
    for function in (*before, F):
        assert isinstance(at.ask(function, x)[0], Ok)
    kernels, sources, programs = excerpt.of([at.pair.last], at.pair.kernels, {**at.stage.sources, **files})
    return {"kernels": kernels, "sources": sources}, [bytes(program.numpy()) for program in programs]


def test_it_does_not_depend_on_the_calls_before(at):
    """A kernel's number does"""
    first = asked(at)
    numbers = [at.pair.last.launches()[0].kernel]
    for before in ([G], [G, F, G]):
        assert asked(at, before=before) == first
        numbers.append(at.pair.last.launches()[0].kernel)
    assert numbers == [1, 2, 2]
    assert [kernel["name"] for kernel in first[0]["kernels"]] == ["_mean", "_times"]
    assert first[0]["kernels"][0]["defaults"] == {"kernel": 7, "t": 9}  # no references, whatever they are called


def test_other_files_are_not_in_it(at):
    assert [*asked(at)[0]["sources"]] == [FILE]
    assert asked(at, **{"cs336_kernels/rmsnorm.py": "a"}) == asked(at, **{"cs336_kernels/rmsnorm.py": "b"})


@pytest.mark.parametrize(
    "other",
    [CODE.replace("constexpr(2)", "constexpr(4)"), CODE.replace("x.numel(), 256", "200, 256"),
     CODE.replace("x.numel(), 256", "x.numel(), 512"), CODE.replace("(1,)", "(2,)"), CODE + "# a comment\n",
     CODE.replace("torch.empty_like(x), x + 1", "torch.empty_like(x, dtype=torch.float16), x + 1")],
)  # fmt: skip
def test_what_a_kernel_is_made_of_is(at, other):
    assert asked(at, other) != asked(at)


def test_sizes_are(at):
    assert asked(at, x=torch.ones(2, 100).T) != asked(at, x=torch.ones(100, 2))


def test_kernels_that_do_not_exist_have_one_number(at):
    """However many are named, by a recorder that may write what it likes"""
    asked(at)
    (launch,) = at.pair.last.launches()
    named = launch._replace(kernel=9, options={"num_warps": [{"kernel": number} for number in range(-500, 100_000)]})
    kernels, _, (program,) = excerpt.of([at.pair.last.part([named])], at.pair.kernels, at.stage.sources)
    assert [kernel["name"] for kernel in kernels] == ["_times", "_mean"]
    (launch,) = programs.read(program).launches()
    assert launch.kernel == 2
    assert {*programs.kernels_in(launch.options["num_warps"])} == {0, 1, 2}
