"""What a grader remembers of the oracle and the models: the same values, by everything that decides them."""

from pathlib import Path

import pytest
import torch

from assignment.classroom.memory import RunMemory, key_of
from assignment.tests.forked import python
from tests.compare import expect
from tests.flash_attention import models


def counted(memory):
    calls = []

    def model(x, scale=1.0):
        calls.append(scale)
        value = x.double() * scale
        return {"y": expect(value, [[value]], [], value.abs(), x.dtype, rows=False)}

    return memory.remembering(model), calls


def test_the_same_inputs_are_computed_once():
    model, calls = counted(RunMemory())
    x = torch.arange(6.0).reshape(2, 3)
    first, again = model(x), model(x.clone())
    assert calls == [1.0]
    assert torch.equal(first["y"].value, again["y"].value)
    first.clear()
    assert model(x)


@pytest.mark.parametrize(
    "other",
    [
        lambda x: ((x + torch.eye(2, 3) * 1e-6,), {}),
        lambda x: ((x.T.contiguous().T,), {}),
        lambda x: ((x.reshape(3, 2),), {}),
        lambda x: ((x.view(torch.int32),), {}),
        lambda x: ((x,), {"scale": 2.0}),
        lambda x: ((x,), {"scale": 1}),
    ],
    ids=["a value", "strides", "shape", "dtype", "an option", "its type"],
)
def test_other_inputs_have_another_key(other):
    x = torch.arange(6.0).reshape(2, 3)
    arguments, options = other(x)
    assert key_of("model", arguments, options) != key_of("model", (x,), {"scale": 1.0} if options else {})


def test_a_remembered_result_that_was_changed_is_computed_anew():
    model, calls = counted(RunMemory())
    x = torch.ones(3)
    model(x)["y"].allowed.zero_()
    assert model(x)["y"].allowed.all()
    assert len(calls) == 2


def test_memory_is_bounded():
    memory = RunMemory(limit=100)
    model, calls = counted(memory)
    for size in (3, 300, 3, 300):
        model(torch.ones(size))
    assert memory.nbytes <= 100
    assert len(calls) == 3


def test_a_model_says_the_same_with_and_without():
    q, k, v = (torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(i)) for i in range(3))
    remembering = RunMemory().remembering(models.attention_forward)
    for _ in range(2):
        for name, want in models.attention_forward(q, k, v, is_causal=True).items():
            got = remembering(q, k, v, is_causal=True)[name]
            assert torch.equal(got.value, want.value)
            assert torch.equal(got.allowed, want.allowed)


def test_tensors_in_lists_count_as_others_do():
    """Of large ones PyTorch's repr has a few elements alone."""
    x = torch.zeros(3000)
    y = x.clone()
    y[1500] = 1.0
    assert repr([x]) == repr([y])
    assert key_of("model", (), {"ranks": [[x]]}) != key_of("model", (), {"ranks": [[y]]})
    assert key_of("model", ([x], []), {}) != key_of("model", ([], [x]), {})
    assert key_of("model", (), {"ranks": [[x]]}) == key_of("model", (), {"ranks": [[x.clone()]]})


def test_every_operator_is_remembered():
    code = (
        "from assignment.classroom import memory; from tests import operators; memory.install(memory.RunMemory()); "
        "made = [make(name) for name, f in operators.functions().items() for make in (operators.model, "
        "lambda name: operators.oracle(operators.functions()[name].oracle))]; "
        "assert made and all(hasattr(one, '__wrapped__') for one in made), made"
    )
    done = python("-c", code, cwd=Path(__file__).parents[2], timeout=60)
    assert done.returncode == 0, done.stderr
