"""What host code hears of its kernels from a warm-up: what they really take, once they are compiled."""

import pytest

from assignment.sandbox import worker_client
from assignment.tests.pairs import F, X, result_of

WARMED_UP = """
told = []

def weighted_sum_forward(x):
    y = torch.empty_like(x)
    compiled = _copy.warmup(x, y, 200, SIZE=256, num_warps=8, grid=(1,))
    if not told:
        told.append(compiled.n_regs)
    found = told[0], compiled.n_spills, compiled.metadata.shared, compiled.metadata.num_warps
    return torch.tensor([float(n) for n in found], device=x.device)
"""


@pytest.fixture
def compiler(at):
    """For what is compiled while a call is recorded."""
    worker = worker_client.Worker(at.stage, "compile")
    at.pair.compiler = lambda: worker
    yield worker
    at.pair.compiler = None
    worker.close()


@pytest.mark.slow
def test_host_code_hears_what_its_kernels_really_take(at, compiler):
    """Recorded anew once they are compiled, from the import on: nothing that it kept is of other figures"""
    at.take(WARMED_UP)
    registers, *others = result_of(at).tolist()
    assert 8 <= registers <= 64
    assert others == [0, 0, 8]
    assert at.pair._n_asked == 1
    assert result_of(at).tolist() == [registers, *others]
    assert at.pair._n_asked == 1


@pytest.mark.slow
def test_a_kernel_that_cannot_be_compiled_has_figures_too(at, compiler):
    code = WARMED_UP.replace("SIZE=256", "SIZE=200")  # no power of two
    at.take(code)
    assert result_of(at).tolist() == [128, 0, 49_152, 4]


def test_figures_are_those_of_each_gpu(at, compiler):
    """A program for each, where host code has asked"""
    at.take(WARMED_UP)
    told = {}
    for target in ("a100", "b200"):
        said, _ = at.record(F, X, target=target)
        assert said.asked
        told[target] = result_of(at, target=target)[0].item()
    assert all(8 <= registers <= 64 for registers in told.values())
    assert len(at.pair._figures) == 2


def test_calls_that_are_compiled_alike_are_asked_for_once(at, compiler):
    at.take(WARMED_UP.replace("y, 200", "y, x.numel()").replace("if not told", "if True"))
    for rows in (3, 5, 7):
        assert result_of(at, X[:rows].clone())[3] == 8
    assert at.pair._n_asked == 1


def test_a_warm_up_on_dtypes_has_the_figures_of_an_ordinary_kernel(at, compiler):
    at.take(WARMED_UP.replace("warmup(x, y,", "warmup(torch.float32, torch.float32,"))
    assert result_of(at).tolist() == [128, 0, 49_152, 4]


def test_so_many_kernels_are_compiled_at_once(at, compiler, monkeypatch):
    """The judge's own time is nobody's to spend"""
    asked = []

    def compiled(header, programs):
        asked.append(header)
        return {"status": "failed", "message": ""}, []

    monkeypatch.setattr(compiler, "ask", compiled)
    several = "    [_copy.warmup(x, y, 2, SIZE=n, grid=(1,)).n_regs for n in range(999)]\n    if not told:"
    at.take(WARMED_UP.replace("    if not told:", several))
    result_of(at)
    assert len(asked) <= 16 * 16


@pytest.mark.slow
def test_whoever_asks_again_and_again_is_answered_in_the_end(at, compiler):
    code = WARMED_UP.replace("def weighted", "import os\n\ndef weighted").replace(
        "200, SIZE", "int(os.urandom(3)[0]), SIZE"
    )
    at.take(code)
    assert result_of(at).tolist()[1:] in ([0, 0, 8], [0, 49_152, 4])
    assert at.pair._n_asked <= 16
