"""Structure: inputs that host code sees as they are, such as the sizes of groups; and that it sees nothing else by it.

The second input of FORWARD is structure here, as an operator's record says it.
"""

import importlib

import pytest
import torch

from assignment import operators as data
from assignment.judge import decoys, rounds
from assignment.judge.replies import Fault, Ok
from assignment.operators.workloads import Spec, Workload
from assignment.recorder.session import stand_in
from assignment.tests.test_whose_work import ADD, FORWARD, X, judged, replied
from assignment.timing.steps import examined
from tests import inputs, operators
from tests.families import Case, Rounds, Subject

SIZES = torch.tensor([2, 0, 1, 1], dtype=torch.int32)


@pytest.fixture(autouse=True)
def structure(monkeypatch):
    monkeypatch.setattr(operators, "_structure", lambda function: [1])


# what host code sees


def test_decoys_keep_structure_and_nothing_else():
    first, second = decoys.like(FORWARD, [X, SIZES], {})
    assert torch.equal(second, SIZES)
    assert second.untyped_storage()._cdata != SIZES.untyped_storage()._cdata
    assert not set(first.flatten().tolist()) & set(X.flatten().tolist())


@pytest.mark.parametrize("layout", [lambda x: x[::2], lambda x: x[1:3], lambda x: x[:1].expand(7)])
def test_decoys_keep_structure_of_any_layout(layout):
    whole = torch.randint(1 << 20, (64,))
    (_, decoy) = decoys.like(FORWARD, [X, layout(whole)], {})
    assert torch.equal(decoy, layout(whole))
    seen = set(decoy.new_empty(0).set_(decoy.untyped_storage()).tolist())
    assert seen & set(whole.tolist()) == set(layout(whole).tolist())


def test_structure_in_the_memory_of_another_input_is_not_kept():
    both = torch.randint(1 << 20, (2, 64))
    (_, decoy) = decoys.like(FORWARD, [both[:, 16:], both[0, :32]], {})
    assert torch.equal(decoy[:16], both[0, :16])
    assert len(set(decoy[16:].tolist()) & set(both[0, 16:32].tolist())) < 2  # two may meet


TABLE = "at = torch.cat([y.new_zeros(1), y.cumsum(0)]); "
COMPUTED = {
    "sums": f"{TABLE}copied(at); return copied(x)",
    "a search": f"{TABLE}copied(torch.searchsorted(at, torch.arange(2, device=x.device))); return copied(x)",
    "repeats": "copied(torch.arange(4, device=x.device).repeat_interleave(y)); return copied(x)",
    "a sort": "copied(y.sort(descending=True).indices); return copied(x)",
    "tiles": "copied((y + 15) // 16); copied(torch.ceil(y / 16)); return copied(x)",
    "a table by Python": (
        "t = [i for i, n in enumerate(y.tolist()) for _ in range(n)]; copied(torch.tensor(t).to(x.device)); "
        "return copied(x)"
    ),
    "numbers": "n = int(y.sum()); i = y[1].item(); y.cpu().numpy(); return copied(x[i:n]), copied(x[:, : y.max()])",
    "a choice by it": "return copied(x[torch.arange(4, device=x.device).repeat_interleave(y)])",
    "parts": "return tuple(copied(part) for part in x.split(y.tolist()) if len(part))",
    "zeros where there is nothing": "z = copied(x); z[y == 0] = 0; return z",
}


@pytest.mark.parametrize("code", COMPUTED.values(), ids=COMPUTED)
def test_what_is_computed_of_structure_is_a_constant(at, code):
    reply, _ = replied(at, code, X, SIZES)
    assert isinstance(reply, Ok), reply
    assert (reply.evidence, reply.doubts, reply.reads) == ((), (), ())


def test_a_second_call_has_its_own_structure(at):
    at.take(f"def {FORWARD}(x, y):\n    copied(y.cumsum(0))\n    return copied(x[: int(y[0])])\n")
    reply, results = at.ask(FORWARD, X, SIZES, X + 1, SIZES.flip(0), kind="again")
    assert isinstance(reply, Ok), reply
    assert (reply.evidence, reply.reads) == ((), ())
    assert [torch.equal(results[i], wanted) for i, wanted in ((0, X[:2]), (3, X[:1] + 1))] == [True, True]


# what it does not see

DATA = {
    "another input": "copied((y + x[:, 0].int())); return copied(x)",
    "a sum of data": "copied(y * x.sum()); return copied(x)",
    "a search for data": "copied(torch.searchsorted(y.cumsum(0).float(), x)); return copied(x)",
    "an element that data chooses": "copied(y[x.argmax(1) % 4]); return copied(x)",
    "structure where data says": "copied(torch.where(x[:, 0] > 0, y, 0)); return copied(x)",
    "data among structure": "t = y.float(); t[2:3] = x[0, :1].exp(); copied(t); return copied(x)",
    "a sort beside data": "copied(x[:, 0].sort().indices + y); return copied(x)",
    "repeats of data": "copied(torch.repeat_interleave(y, (x[:, 0] * 0 + 1).int(), output_size=4)); return copied(x)",
}


@pytest.mark.parametrize("code", DATA.values(), ids=DATA)
def test_what_is_computed_of_data_too_is_no_constant(at, code):
    reply, _ = replied(at, code, X, SIZES)
    assert isinstance(reply, Ok), reply
    assert reply.evidence


RETURNED = {
    "as it is": "return y.clone()",
    "as a number": "return y.float() * 2",
    "beside a kernel's work": "z = copied(x); z[:, 0] = y.float(); return z",
    "by way of Python": "return torch.tensor(y.tolist(), device=x.device)",
}


@pytest.mark.parametrize("code", RETURNED.values(), ids=RETURNED)
def test_structure_is_never_returned(at, code):
    evidence, _, _ = judged(at, code, X, SIZES)
    assert "filled in from Python numbers" in evidence[0]


def test_values_of_data_that_host_code_reads_are_told(at):
    reply, _ = replied(at, "x[0, 0].item(); y[0].item(); return copied(x)", X, SIZES)
    assert len(reply.reads) == 1
    assert "x[0, 0].item()" in reply.reads[0]


def test_structure_is_not_written_to(at):
    """Or data would be in it"""
    for code in ("y.copy_(x[:, 0]); return copied(x)", "_add[(1,)](x, y, 4, 4); return copied(x)"):
        assert isinstance(replied(at, code, X, SIZES, before=ADD)[0], Fault)


def test_structure_in_the_memory_of_another_input_is_data(at):
    both = torch.randn(4, 50)
    evidence, _, _ = judged(at, "copied(y.exp()); return copied(x)", both, both[0])
    assert "aten::exp" in evidence[0]


@pytest.mark.parametrize("kind", ["call", "costs"])
def test_without_a_record_that_says_so_nothing_is_structure(at, monkeypatch, kind):
    monkeypatch.setattr(operators, "_structure", lambda function: [])
    reply, _ = replied(at, "copied(y.cumsum(0)); y[0].item(); return copied(x)", X, SIZES, kind=kind)
    assert reply.evidence
    assert reply.reads


@pytest.mark.parametrize("kind", ["call", "costs"])
def test_with_one_it_is_also_where_costs_are_counted(at, kind):
    reply, _ = replied(at, "copied(y.cumsum(0)); return copied(x)", X, SIZES, kind=kind)
    assert reply.evidence == ()


# where it comes from


def test_its_stream_is_another():
    """What it draws is not what the generator of other values draws, before or after, and differs by seed"""
    first, again, other = (torch.Generator().manual_seed(seed) for seed in (1, 1, 2))
    of_structure = torch.rand(8, generator=inputs.apart(first))
    assert torch.equal(of_structure, torch.rand(8, generator=inputs.apart(again)))
    assert not torch.equal(of_structure, torch.rand(8, generator=inputs.apart(other)))
    drawn = torch.rand(5000, generator=torch.Generator().manual_seed(1))
    assert not set(of_structure.tolist()) & set(drawn.tolist())
    assert not torch.equal(torch.rand(8, generator=inputs.apart(first)), of_structure)


def generators(seed, monkeypatch, modules):
    """A generator for inputs; another one, that is the same for all seeds, stands in for that of structure."""
    for module in (inputs, *modules):
        monkeypatch.setattr(module, "apart", lambda rng: torch.Generator().manual_seed(0), raising=False)
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("operator", [one for one in operators.operators() if one.structure], ids=lambda one: one.name)
def test_operators_draw_structure_from_no_other_stream(operator, monkeypatch):
    """Of every call of every check; where that stream is another, it is another for some"""
    paths = (operators.HERE / operator.name).glob("test_*.py")
    modules = [importlib.import_module(f"tests.{operator.name}.{path.stem}") for path in paths]
    subjects = {one.function: one for module in modules for one in vars(module).values() if isinstance(one, Subject)}
    assert subjects
    differ = 0
    for test in [value for module in modules for value in vars(module).values() if hasattr(value, "pytestmark")]:
        subject = subjects[operators.named_by(test.__doc__).name]
        places = [operators.functions()[subject.function].inputs.index(name) for name in operator.structure]
        marks = {mark.name: mark.args for mark in test.pytestmark}
        cases = [] if marks.get("problem") == ("speed",) else marks["parametrize"][1]
        for case in [one for one in cases if isinstance(one, Case) and not isinstance(one.shape, Rounds)]:

            def drawn(rng, case=case, subject=subject, places=places):
                made = case.tensors(subject, rng, memory_bytes=0)
                made = made if isinstance(made[0], torch.Tensor) else made[0]  # of the first rank
                return [made[place].tolist() for place in places]

            with monkeypatch.context() as patched:
                one, other = (drawn(generators(seed, patched, modules)) for seed in (1, 2))
                assert one == other
            differ += drawn(torch.Generator().manual_seed(1)) != drawn(torch.Generator().manual_seed(2))
    assert differ


# where there are shapes alone


def test_stand_ins_have_structure():
    assert torch.equal(stand_in("int32", [4], [2, 0, 1, 1]), SIZES)
    assert stand_in("float32", [4], None).shape == (4,)


def test_grown_inputs_have_grown_structure():
    grown = rounds.Grown(4, [X, SIZES], [X.repeat(2, 1), SIZES * 2], [1])
    x, sizes = grown.to(12)
    assert x.is_meta
    assert x.shape == (12, 50)
    assert torch.equal(sizes, SIZES * 3)


def test_slots_have_the_structure_of_their_workload():
    specs = {"x": Spec(torch.float32, (4, 5)), "sizes": Spec(torch.int32, (4,), values=(2, 0, 1, 1))}
    memory = type("Memory", (), {"randomize": lambda _, tensor, generator: tensor.fill_(7)})()
    slot = [torch.zeros(4, 5), torch.zeros(4, dtype=torch.int32)]
    Workload("any", specs, {}).fill(slot, memory, torch.Generator())
    assert torch.equal(slot[1], SIZES)
    assert (slot[0] == 7).all()


@pytest.mark.parametrize(("code", "evidence"), [("y.cumsum(0)", 0), ("x.cumsum(0)", 1), ("y * x[:, 0]", 1)])
def test_a_timed_program_may_compute_with_it_alone(at, code, evidence):
    at.take(f"def {FORWARD}(x, y):\n    copied({code})\n    return copied(x)\n")
    _, program = at.record(FORWARD, X, SIZES)
    assert len(examined(program, FORWARD).evidence) == evidence


def test_workloads_say_what_structure_is():
    """Or the stand-ins of what is timed would have other values than its slots"""
    for work in [work for part in data.parts("workload") for work in part.sweep()]:
        structure = operators.operator_of(work.function).structure
        assert [name for name, spec in work.inputs.items() if spec.values is not None] == [
            name for name in work.inputs if name in structure
        ]
