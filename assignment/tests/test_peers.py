"""What submissions are raced against, as far as it runs without a GPU: it must be the same work."""

import importlib
import os
import subprocess
import sys

import pytest
import torch

from assignment.judge.pair import RecorderAndPlayer
from assignment.judge.replies import Ok
from assignment.operators.workloads import COPYING
from assignment.protocol.requests import Call
from assignment.sandbox.stage import Stage
from assignment.system import here
from assignment.system.interface import BUBBLEWRAP, RUNGS, Folders, setup
from assignment.system.linux import bubblewrap
from assignment.tests.graded import RUNG
from assignment.tests.specification import at_least_matrices, oracle, subjects
from assignment.timing import contestants
from tests import operators
from tests.operators import called


@pytest.fixture(scope="module")
def call():
    """A function of a peer, recorded and played."""
    stage = Stage(contestants.peers())
    pair = RecorderAndPlayer(stage, RUNG)

    def call(peer, function, *tensors, **options):
        request = Call(**called(f"{peer}__{function}"), options=options)
        reply, results = pair.ask(request, list(tensors))
        assert reply is not None
        return reply.returned(results) if isinstance(reply, Ok) else reply

    yield call
    pair.close()
    stage.close()


def inputs(function):
    """Tensors for the function, and what it must return."""
    rng = torch.Generator().manual_seed(0)
    if function in OF_PRACTICE:
        subject = subjects(function)[0]
        tensors = at_least_matrices(subject, lambda: rng, (16, 32), torch.float32)
        expected = tuple(want.value for want in subject.model(*tensors).values())
        return tensors, expected if len(expected) > 1 else expected[0]
    if not function.startswith("flash"):
        x, weight, grad = (torch.randn(*shape, generator=rng) for shape in ((16, 32), (32,), (16, 32)))
        rstd = oracle.rmsnorm_forward(x, weight)[1].float()
        tensors = {
            "weighted_sum_forward": (x, weight),
            "weighted_sum_backward": (grad[:, 0].clone(), x, weight),
            "rmsnorm_forward": (x, weight),
            "rmsnorm_backward": (grad, x, weight, rstd),
        }[function]
        return tensors, getattr(oracle, function)(*tensors)
    grad, q, k, v = (torch.randn(2, 3, 24, 8, generator=rng) for _ in range(4))
    o, lse = oracle.attention_forward(q, k, v, True)
    if function == "flash_forward_triton":
        return (q, k, v), (o, lse)
    return (grad, q, k, v, o.float(), lse.float()), oracle.attention_backward(grad, q, k, v, True)


PEERS_OF_PRACTICE = {
    name: peers
    for operator in operators.operators()
    if operator.is_apart and (contestants.ROOT / "assignment/operators" / operator.name / "workload.py").is_file()
    for name, peers in importlib.import_module(f"assignment.operators.{operator.name}.workload").PEERS.items()
}
OF_PRACTICE = [*PEERS_OF_PRACTICE]
FUNCTIONS = [
    "weighted_sum_forward", "weighted_sum_backward", "rmsnorm_forward", "rmsnorm_backward",
    *OF_PRACTICE,
    "flash_forward_triton", "flash_backward_triton",
]  # fmt: skip
COPIED = [name for name in FUNCTIONS[:-2] if COPYING in PEERS_OF_PRACTICE.get(name, [COPYING])]


@pytest.mark.parametrize("peer", ["naive", "compiled"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_it_computes_the_same(call, function, peer):
    tensors, expected = inputs(function)
    options = {"is_causal": True} if function.startswith("flash") else {}
    came = call(peer, function, *tensors, **options)
    for got, want in zip(*((x if isinstance(x, tuple) else (x,)) for x in (came, expected)), strict=True):
        rtol = max(1e-4, torch.finfo(got.dtype).eps)
        torch.testing.assert_close(got.double(), want.double(), rtol=rtol, atol=1e-4)


@pytest.mark.parametrize("function", COPIED)
def test_a_copy_has_the_form_of_the_results(call, function):
    tensors, expected = inputs(function)
    x = tensors[1] if "backward" in function else tensors[0]
    came = call("copying", function, *tensors)
    came, expected = ((y if isinstance(y, tuple) else (y,)) for y in (came, expected))
    assert [y.shape for y in came] == [y.shape for y in expected]
    assert torch.equal(came[0], x if came[0].ndim == 2 else x[:, 0])


def test_a_peer_that_is_not_installed_says_so(call):
    came = call("liger", "rmsnorm_forward", *inputs("rmsnorm_forward")[0])
    assert "liger_kernel" in came.message
    assert "no function" in call("flex", "rmsnorm_backward", torch.ones(1)).message


def test_packages_of_pythonpath_are_for_peers(tmp_path, monkeypatch):
    """Neither the repository, which is hidden from workers, nor what is not there"""
    named = [tmp_path, contestants.ROOT, contestants.ROOT.parent, tmp_path / "none", ""]
    monkeypatch.setenv("PYTHONPATH", ":".join(map(str, named)))
    assert contestants.packages() == [str(tmp_path.resolve())]
    folders = Folders("/a", "/b", "/c", packages=tuple(contestants.packages()))
    for rung in RUNGS:
        told = setup(rung, "cuda", here.seen(rung, folders), here.readable("cuda"))
        assert told["packages"] == (str(tmp_path.resolve()),)
        assert str(tmp_path.resolve()) in told["readable"]
    words = bubblewrap.command(BUBBLEWRAP, "cuda", folders, 3, {})
    assert ["--ro-bind", str(tmp_path.resolve()), str(tmp_path.resolve())] in [
        words[i : i + 3] for i in range(len(words))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["flash_attn_interface", "fa3_fwd_interface"])
def test_flash_attention_3_goes_by_two_names(name, tmp_path, monkeypatch):
    """As it is built, and as the wheel fa3-fwd has it"""
    (tmp_path / f"{name}.py").write_text("def flash_attn_func(q, k, v, causal):\n    return q.shape, causal\n")
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.append({str(tmp_path)!r})\n{RUN_FLASH3}"],
        cwd=contestants.ROOT,
        capture_output=True,
        text=True,
        timeout=99,
    )
    assert done.stdout == "torch.Size([2, 5, 3, 8])\n", done.stderr


RUN_FLASH3 = """
import torch
from assignment.operators.flash_attention.peers import flash3
q = torch.zeros(2, 3, 5, 8)
print(flash3.flash_forward_triton(q, q, q, is_causal=True))
"""


@pytest.mark.slow
def test_the_entries_for_hopper_compile_without_a_gpu():
    """And on a Hopper GPU their results are right"""
    program = contestants.ROOT / "assignment/tests/data/hopper.py"
    env = {**os.environ, "PYTHONPATH": str(contestants.ROOT)}
    done = subprocess.run([sys.executable, program], env=env, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("compiled") == 20
