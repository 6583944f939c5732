"""Misconceptions: each is recognised by its own results, and nothing else is."""

import itertools
import math
from contextlib import suppress
from dataclasses import replace
from inspect import signature
from typing import Any

import pytest
import torch

from assignment.judge import ranked
from assignment.operators.misconception import MOST_PAIRS, Call
from assignment.tests.pairs import request
from assignment.tests.specification import at_least_matrices, models, oracle, subjects
from assignment.verdict import checks, score
from assignment.verdict.case import Case, CheckCases
from assignment.verdict.diagnosis import candidates, matching
from assignment.verdict.diagnosis.candidates import calls
from assignment.verdict.diagnosis.matching import causes
from assignment.verdict.search import MOST_IN_VAIN, SHARE, Search, WrongResult
from tests import operators
from tests.flash_attention.inputs import Attention, after_forward, forward_inputs
from tests.inputs import normal
from tests.rows import row_inputs

EVERY = [(function, one) for function, models_ in candidates.MODELS.items() for one in models_.misconceptions]
IN_THE_BANK = ("16-bits", "p-rounded", "inputs-rounded", "values-limited")  # seen on the checks' own inputs only
PLAIN = [(function, one) for function, one in EVERY if not any(part in one.name for part in IN_THE_BANK)]
ATTENTION = [(function, one) for function, one in EVERY if function.startswith("flash")]
ALONE = {"times": 1, "has_grad": False, "interleaved": False}
WRONG_CALL = WrongResult(request("rmsnorm_forward", "call", {}), [], [torch.ones(1)], {})


def only(monkeypatch, function, misconceptions):
    """These are all that a student can have of the function."""
    monkeypatch.setitem(
        candidates.MODELS, function, replace(candidates.MODELS[function], misconceptions=misconceptions)
    )


def asked_of(call) -> tuple[Any, Any]:
    return request(call.function, "call", {"options": call.options}), call.tensors


SHAPES = [
    Attention((), 40, 50, 24),
    Attention((), 50, 40, 24),
    Attention((), 45, 45, 24, shift=-1e4),
    Attention((2,), 33, 33, 24),
]


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def attention_calls(dtype):
    """Ordinary ones, longer and shorter than there are keys, and logits far below and above zero."""
    for shape in SHAPES:
        for is_causal in (False, True):
            yield forward_inputs(rng(), shape, dtype), is_causal
    q, k, v = forward_inputs(rng(), SHAPES[0], dtype)
    yield [10 * q, 10 * k, v], False


ROW_SHAPES = ((70, 40), (3, 17, 300), (2, 5000))
OF_PRODUCTS = (20, 260, 130)  # with several blocks of terms


def row_calls(dtype):
    """Narrow and wide rows, small ones and large ones."""
    for shape in ROW_SHAPES:
        for factor in (1e-3, 1.0, 30.0):
            x, weight = row_inputs(rng(), shape, dtype)
            yield factor * x, weight


def with_infinities(x):
    """−∞ in the first 1,100 columns of a row, or in all of the first row where there are fewer."""
    x = x.clone()
    x.flatten(0, -2)[0, :1100] = -math.inf
    return x


def by_columns(x):
    """The same values, whose columns are contiguous."""
    return x.mT.contiguous().mT


def coarse(tensors):
    """Numbers that TF32 holds: what is left of an error is that of sums."""
    return [tensor.bfloat16().to(tensor.dtype) for tensor in tensors]


def options_of(subject):
    """The defaults, and the other form of a function that has two."""
    has_forms = "approximate" in signature(subject.model).parameters
    return ({}, {"approximate": "tanh"}) if has_forms else ({},)


def calls_of_ranks(function, dtype):
    """Those of three ranks, two each, with as many rows each and with others."""
    for shape in (([70] * 3, 40, 40), ([33, 0, 70], 40, 50), (OF_PRODUCTS[:1] * 3, *OF_PRODUCTS[1:])):
        subject = subjects(function)[-1]
        both: Any = [subject.build(rng(seed), shape, dtype) for seed in range(2)]
        sent = ranked.sent(subject.function, both)
        for call in calls(request(subject.function, "ranks", {"ranks": 3, "calls": 2}), sent):
            yield call, subject.model(*call.tensors, **call.options)


def all_calls(function, dtype):
    """Calls of a function, with what is expected of each."""
    if function == "attention_forward":
        for qkv, is_causal in attention_calls(dtype):
            q, k, v = qkv
            yield Call(function, qkv, {"is_causal": is_causal}), models.attention_forward(q, k, v, is_causal)
    elif function == "attention_backward":
        for qkv, is_causal in attention_calls(dtype):
            tensors = after_forward(rng(1), qkv, is_causal)
            expected = models.attention_backward(*tensors, is_causal=is_causal)
            yield Call(function, tensors, {"is_causal": is_causal}), expected
    elif operators.operator_of(operators.of_oracle(function).name).heap:
        yield from calls_of_ranks(function, dtype)
    elif operators.operator_of(operators.of_oracle(function).name).is_apart:
        for subject in subjects(function):
            is_product = candidates.MODELS[function].n_inner > 1
            for shape in (*ROW_SHAPES, OF_PRODUCTS) if is_product else ROW_SHAPES:
                given, *others = at_least_matrices(subject, rng, shape, dtype)
                first = given.float()
                firsts = (first, 1000 * first, 1e10 * first, first - 1000, with_infinities(first), by_columns(first))
                changes = [[changed.to(given.dtype), *others] for changed in firsts]
                for tensors in [*changes, coarse([given, *others])]:
                    with suppress(ValueError):  # that overflow in an honest model
                        for options in options_of(subject):
                            yield Call(function, tensors, options), subject.model(*tensors, **options)
    else:
        for x, weight in row_calls(dtype):
            for options in ({}, {"eps": 0.1}) if function == "rmsnorm_forward" else ({},):
                grad = normal(rng(1), *x.shape[: None if "rmsnorm" in function else -1], dtype=dtype)
                rows = [grad, x, weight] if "backward" in function else [x, weight]
                if function == "rmsnorm_backward":
                    rows.append(oracle.rmsnorm_forward(x, weight)[1].float())
                yield Call(function, rows, options), getattr(models, function)(*rows, **options)


def is_wrong(outputs, expected):
    return matching.distance(outputs, [want.value for want in expected.values()], expected) > 2


@pytest.mark.parametrize(("function", "misconception"), PLAIN, ids=[one.name for _, one in PLAIN])
def test_a_misconception_is_recognised(function, misconception, monkeypatch):
    only(monkeypatch, function, [misconception])
    for call, expected in all_calls(function, torch.float32):
        for outputs in misconception.model(call):
            got = [output.to(want.dtype) for output, want in zip(outputs, expected.values(), strict=True)]
            if any(output.isfinite().any() for output in got) and is_wrong(got, expected):
                if candidates.told_by(misconception) in causes([call], got, expected):
                    return
                break
    pytest.fail("none of its results is recognised, or none is wrong")


@pytest.mark.slow
@pytest.mark.parametrize("function", candidates.MODELS)
@pytest.mark.parametrize("seed", range(2))
def test_silence_is_better_than_a_guess(function, seed):
    """Results that are wrong in no way that is known"""
    for call, expected in [*all_calls(function, torch.float32)][seed::4]:
        noise = rng(seed + 10)
        got = [
            want.value + 0.3 * want.value.abs().max() * normal(noise, *want.value.shape) for want in expected.values()
        ]
        got = [output.to(want.dtype) for output, want in zip(got, expected.values(), strict=True)]
        assert not is_wrong(got, expected) or causes([call], got, expected) == []
        half = [want.value.clone(memory_format=torch.contiguous_format) for want in expected.values()]
        half[0].view(-1)[::7] *= 1.5
        got = [output.to(want.dtype) for output, want in zip(half, expected.values(), strict=True)]
        assert not is_wrong(got, expected) or causes([call], got, expected) == []


def test_a_result_of_another_call():
    first, second = ([normal(rng(seed), 64, 40), normal(rng(seed + 5), 40)] for seed in range(2))
    got = [oracle.weighted_sum_forward(*first).float()]
    assert causes(
        calls(request("weighted_sum_forward", "again", {}), [*first, *second]),
        got,
        models.weighted_sum_forward(*second),
    ) == [matching.OF_ANOTHER_CALL]


def test_a_tensor_read_in_the_wrong_place():
    x = normal(rng(), 40, 64).T
    call = Call("weighted_sum_forward", [x, normal(rng(1), 40)])
    misread = x.as_strided(x.shape, (40, 1))
    (found,) = causes(
        [call],
        [oracle.weighted_sum_forward(misread, call.tensors[1]).float()],
        models.weighted_sum_forward(*call.tensors),
    )
    assert "x is read as if it were contiguous" in found.says


def test_gradients_are_those_of_a_backward_pass():
    x, weight = row_inputs(rng(), (33, 40))
    asked = request("rmsnorm", "gradients", {"options": {"eps": 0.1}, "wrt": [0], **ALONE})
    (call,) = calls(asked, [x, weight])
    rstd = oracle.rmsnorm_forward(x, weight, 0.1)[1].float()
    backward = (torch.ones_like(x), x, weight, rstd)
    expected = {"grad_x": models.rmsnorm_backward(*backward)["grad_x"]}
    x_hat = x * rstd[:, None]
    (found,) = causes(
        [call], [(rstd[:, None] * (weight + x_hat * (weight * x_hat).mean(-1, keepdim=True))).float()], expected
    )
    assert "added instead of subtracted" in found.says


@pytest.mark.parametrize(("function", "misconception"), ATTENTION, ids=[one.name for _, one in ATTENTION])
def test_what_is_looked_for_in_one_entry_of_a_batch_is_of_that_entry(function, misconception):
    """Otherwise it would not be found: the others are looked into only if that one is explained."""
    one_way: dict[bool, list[Call]] = {True: [], False: []}
    for dtype in (torch.float32, torch.bfloat16):
        for call, _ in all_calls(function, dtype):
            if call.tensors[0].ndim > 2:
                alone = replace(call, tensors=[tensor[1] for tensor in call.tensors])
                for whole, part in zip(misconception.model(call), misconception.model(alone), strict=True):
                    is_same = all(torch.allclose(a[1], b, 1e-9, 1e-12, True) for a, b in zip(whole, part, strict=True))
                    one_way[is_same].append(call)
    assert not one_way[False] or not misconception.is_by_batch
    assert one_way[False] or misconception.is_by_batch


def test_a_factor_that_is_the_same_everywhere():
    """Of each output by itself; what is not one factor is none"""
    x, weight = row_inputs(rng(), (33, 40))
    call = Call("rmsnorm_forward", [x, weight])
    y, rstd = oracle.rmsnorm_forward(x, weight)
    expected = models.rmsnorm_forward(x, weight)
    (found,) = causes([call], [(0.75 * y).float(), rstd.float()], expected)
    assert str(found).startswith(
        "Everywhere alike your y is 0.75 times what it should be (handout/rmsnorm.md#what-goes-wrong"
    )
    assert (found.name, found.numbers) == ("factor of y", (0.75,))
    (found,) = causes([call], [(0.75 * y).float(), (3 * rstd).float()], expected)
    assert found.says.startswith("Everywhere alike your y is 0.75 times and rstd is 3 times what it should be")
    some = torch.where(torch.arange(33)[:, None] < 20, 0.75 * y, y)
    assert causes([call], [some.float(), rstd.float()], expected) == []


def test_a_mean_over_no_rows():
    grad_y, x, weight = torch.ones(0), torch.ones(0, 40), torch.ones(40)
    call = Call("weighted_sum_backward", [grad_y, x, weight])
    expected = models.weighted_sum_backward(grad_y, x, weight)
    got = [torch.ones(0, 40), torch.full((40,), torch.nan)]
    wrong = WrongResult(*asked_of(call), got, expected)
    found = Search().causes("contract", "weighted_sum_backward", False, wrong)
    assert found == [matching.OF_AN_EMPTY_BATCH]
    assert found[0].section == candidates.MODELS["weighted_sum_backward"].section


def test_a_sum_that_is_carried_over_from_the_call_before():
    first, second = (after_forward(rng(seed), forward_inputs(rng(seed), SHAPES[0]), False) for seed in (0, 1))
    both = [Call("attention_backward", tensors, {"is_causal": False}) for tensors in (first, second)]
    sums, want = (candidates.right(call.function, call, call.tensors) for call in both)
    expected = models.attention_backward(*second, is_causal=False)
    got = [(sums[0] + want[0]).float(), *(x.float() for x in want[1:])]
    assert causes(both, got, expected) == [matching.ADDED_TO_ANOTHER]


@pytest.mark.parametrize("what", ["all", "computed alone", "switches"])
def test_what_another_graph_has_saved(what):
    """All of it, what its forward pass has computed, or its options"""
    qkv = forward_inputs(rng(), SHAPES[0])
    how = {"options": {"is_causal": True}, "wrt": [0, 1, 2], **ALONE}
    (call,) = calls(request("flash_attention", "gradients", {**how, "interleaved": True}), qkv)
    grad, *saved = call.tensors
    others = [x / 2 for x in qkv]
    own = [
        *others,
        *candidates.intermediates("attention_backward", others, {"is_causal": False}, torch.float32).values(),
    ]
    tensors = {"all": own, "computed alone": [*qkv, *own[3:]], "switches": saved}[what]
    options = {"is_causal": what != "switches"}
    wrong = candidates.right("attention_backward", replace(call, options=options), [grad, *tensors])
    expected = models.attention_backward(grad, *saved, is_causal=True)
    assert candidates.OF_ANOTHER_GRAPH in causes([call], [x.float() for x in wrong], expected)
    (alone,) = calls(request("flash_attention", "gradients", how), qkv)
    assert candidates.OF_ANOTHER_GRAPH not in causes([alone], [x.float() for x in wrong], expected)


def test_a_result_that_is_stored_with_an_input_s_strides():
    q, k, v = (x[0] for x in forward_inputs(rng(), SHAPES[3]))
    q = q.T.contiguous().T
    o, lse = oracle.attention_forward(q, k, v)
    stored = torch.empty(o.numel())
    stored.as_strided(o.shape, q.stride()).copy_(o)
    found = causes(
        [Call("attention_forward", [q, k, v], {})],
        [stored.view(o.shape), lse.float()],
        models.attention_forward(q, k, v, False),
    )
    assert any("stored with an input's strides" in hint.says for hint in found)


def test_strides_of_batches_that_were_made_one():
    """As a wrapper passes them, whose kernel knows one dimension of rows"""
    x, weight = normal(rng(), 3, 64, 32), normal(rng(1), 32)
    misread = x.view(192, 32).as_strided((192, 32), (1, 192 * 32 // 192)).reshape(3, 64, 32)
    expected = models.weighted_sum_forward(x, weight)
    found, *_ = causes(
        [Call("weighted_sum_forward", [x, weight])], [oracle.weighted_sum_forward(misread, weight).float()], expected
    )
    assert "x's last two strides are swapped" in found.says


def test_only_one_half_of_a_backward_pass_reads_in_the_wrong_places():
    """D is computed by a kernel of its own"""
    q, k, v = forward_inputs(rng(), SHAPES[3])
    grad_o, *others = after_forward(rng(1), [q, k, v], False)
    grad_o = grad_o.mT.contiguous().mT
    call = Call("attention_backward", [grad_o, *others], {"is_causal": False})
    misread = grad_o.as_strided(grad_o.shape, others[0].stride())
    expected = models.attention_backward(grad_o, *others, is_causal=False)
    for wrong in candidates.results("attention_backward", call, [misread, *others]):
        found = causes([call], [x.float() for x in wrong], expected)
        assert any("grad_o is read" in hint.says for hint in found)


def test_only_what_explains_the_first_check_is_tried_on_others(monkeypatch):
    tried: list[list[Any]] = []

    def causes_found(calls, got, expected, known, budget, only_known, enough):
        tried.append([*known, only_known])
        return found

    monkeypatch.setattr(matching, "causes", causes_found)
    search = Search()
    found: list[Any] = []
    assert search.causes("plain", "rmsnorm_forward", True, WRONG_CALL) == []
    assert search.causes("ragged", "rmsnorm_forward", False, WRONG_CALL) is None
    found = ["eps"]
    assert search.causes("plain", "rmsnorm_forward", True, WRONG_CALL) == ["eps"]
    assert search.causes("ragged", "rmsnorm_forward", False, WRONG_CALL) == ["eps"]
    assert tried == [[False], [False], ["eps", True]]


def wrong_rows(shape, seed=0) -> WrongResult:
    """A result that no model explains."""
    x, weight = normal(rng(seed), *shape), normal(rng(seed + 1), shape[-1])
    call = Call("weighted_sum_forward", [x, weight])
    got = [normal(rng(seed + 2), *shape[:-1])]
    return WrongResult(*asked_of(call), got, models.weighted_sum_forward(x, weight))


def case_of(name, wrong) -> Case:
    return Case(name, score.FAIL, wrong=wrong.packed())


CHECK = next(check for check in checks.declared() if check.function == "weighted_sum_forward")


def test_a_search_is_the_same_in_whatever_order_cases_were_judged():
    one = candidates.MODELS["weighted_sum_forward"].misconceptions[0]
    cases = []
    for i, shape in enumerate([(200, 64), (40, 64), (300, 32)]):
        wrong = wrong_rows(shape, seed=i)
        (outputs, *_) = one.model(Call("weighted_sum_forward", wrong.sent))
        cases.append(case_of(str(i), replace(wrong, got=[outputs[0].float()]) if i == 1 else wrong))
    for elements in (math.inf, 1e6, 0.0):
        found = []
        for order in itertools.permutations(cases):
            explained = Search(elements).explained(CheckCases(CHECK, order, 3))
            assert [case.name for case in explained.cases] == [case.name for case in order]
            assert not any(case.wrong for case in explained.cases)
            found.append({case.name: case.hints for case in explained.cases})
        assert all(one == found[0] for one in found)
        assert one.name in {hint.name for hint in found[0]["1"] or ()} or not elements


def test_a_search_that_ends_early_does_not_say_that_nothing_explains_a_result():
    case = case_of("", wrong_rows((40, 64)))
    assert Search().look(CHECK.name, case).hints == ()
    assert Search(elements=1e4).look(CHECK.name, case).hints is None


def test_models_compute_no_more_than_the_budget(monkeypatch):
    computed = []

    def model(call):
        for _ in range(100):
            computed.append(call.tensors[0].numel())
            yield [call.tensors[0].double().sum(-1)]

    only(monkeypatch, "weighted_sum_forward", [replace(EVERY[0][1], model=model, is_by_batch=False)])
    Search(elements=1e5 / SHARE).look(CHECK.name, case_of("", wrong_rows((40, 64))))
    assert 1e5 < sum(computed) <= 1e5 + 40 * 64


def test_a_large_result_leaves_elements_for_small_ones():
    one = candidates.MODELS["weighted_sum_forward"].misconceptions[0]
    small = wrong_rows((40, 64))
    (outputs, *_) = one.model(Call("weighted_sum_forward", small.sent))
    search = Search(elements=2e6)
    assert search.look(CHECK.name, case_of("large", wrong_rows((4000, 64)))).hints is None
    found = search.look(CHECK.name, case_of("small", replace(small, got=[outputs[0].float()]))).hints
    assert one.name in {hint.name for hint in found or ()}


def test_inputs_that_lie_apart_in_large_memory_are_sent_without_it():
    x = torch.empty(1 << 33, dtype=torch.uint8).view(torch.float32).as_strided((4, 8), (1 << 28, 1)).fill_(2.0)
    wrong = replace(wrong_rows((4, 8)), sent=[x, torch.ones(8).as_strided((4,), (2,))])
    assert len(wrong.packed()) < 10_000
    ours, other = WrongResult.unpacked(wrong.packed()).sent
    assert torch.equal(ours, x)
    assert other.stride() == (2,)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16], ids=str)
def test_results_of_every_type_are_sent(dtype):
    x = torch.arange(8.0).to(dtype)
    ours, *_ = WrongResult.unpacked(replace(wrong_rows((4, 8)), sent=[x[2:]]).packed()).sent
    assert (ours.dtype, ours.storage_offset()) == (dtype, 2)
    assert torch.equal(ours.float(), x[2:].float())


def test_a_check_is_given_up_after_a_few_results(monkeypatch):
    monkeypatch.setattr(matching, "causes", lambda *_, **__: [])
    search = Search()
    came = [search.causes("ragged", "rmsnorm_forward", False, WRONG_CALL) for _ in range(MOST_IN_VAIN + 2)]
    assert came == [[]] * MOST_IN_VAIN + [None, None]


def test_where_something_known_explains_a_result_nothing_else_is_tried(monkeypatch):
    one = candidates.MODELS["weighted_sum_forward"].misconceptions[0]
    only(monkeypatch, "weighted_sum_forward", [one, replace(one, name="the-same")])
    call = Call("weighted_sum_forward", [normal(rng(), 40, 64), normal(rng(1), 64)])
    (got,) = next(iter(one.model(call)))
    expected = models.weighted_sum_forward(*call.tensors)
    both = causes([call], [got.float()], expected)
    assert len(both) == 2
    assert causes([call], [got.float()], expected, both[1:]) == both[1:]


def test_there_are_models_enough_and_each_has_a_name_of_its_own():
    names = [one.name for _, one in EVERY]
    assert len(set(names)) == len(names) >= 35
    assert len({str(candidates.told_by(one)) for _, one in EVERY}) == len(names)


PAIRS = [(function, pair) for function, models_ in candidates.MODELS.items() for pair in models_.pairs]


def test_pairs_are_of_misconceptions_and_few():
    for models_ in candidates.MODELS.values():
        assert len(models_.pairs) <= MOST_PAIRS
        assert {name for pair in models_.pairs for name in (pair.one, pair.other)} <= {
            one.name for one in models_.misconceptions
        }


@pytest.mark.parametrize(("function", "pair"), PAIRS, ids=[f"{one.one}+{one.other}" for _, one in PAIRS])
def test_two_mistakes_at_once_are_named_together(function, pair, monkeypatch):
    """By a search that knows them and each alone, which does not explain it"""
    own = candidates.MODELS[function]
    two = [one for one in own.misconceptions if one.name in (pair.one, pair.other)]
    monkeypatch.setitem(candidates.MODELS, function, replace(own, misconceptions=two, pairs=[pair]))
    for call, expected in all_calls(function, torch.float32):
        for outputs in pair.model(call):
            got = [output.to(want.dtype) for output, want in zip(outputs, expected.values(), strict=True)]
            if is_wrong(got, expected) and told_together(pair) in names(causes([call], got, expected)):
                return
    pytest.fail("it is not recognised")


def told_together(pair):
    return f"{pair.one}{candidates.SEVERAL}{pair.other}"


def names(found):
    return [one.name for one in found]


def test_each_output_is_matched_by_itself():
    """Mistakes in two outputs, which no pair of the operator's holds"""
    x, weight = row_inputs(rng(), (33, 40))
    rstd = oracle.rmsnorm_forward(x, weight)[1].float()
    call = Call("rmsnorm_backward", [normal(rng(1), *x.shape), x, weight, rstd])
    expected = models.rmsnorm_backward(*call.tensors)
    named = {one.name: one for one in candidates.MODELS["rmsnorm_backward"].misconceptions}
    right = [want.value for want in expected.values()]
    of_one = {
        i: [
            (name, outputs[i])
            for name, one in named.items()
            for outputs in one.model(call)
            if is_wrong([outputs[i], right[1 - i]][:: 1 - 2 * i], expected)
            and not is_wrong([right[i], outputs[1 - i]][:: 1 - 2 * i], expected)
        ]
        for i in (0, 1)
    }
    got = [of_one[0][0][1].float(), of_one[1][0][1].float()]
    (found,) = causes([call], got, expected)
    assert found.name == f"{of_one[0][0][0]}{candidates.SEVERAL}{of_one[1][0][0]}"
    assert found.says.startswith("2 mistakes at once. ")


@pytest.mark.lengthy
@pytest.mark.parametrize("function", candidates.MODELS)
def test_no_pair_is_named_for_a_single_mistake(function):
    """Of each misconception, and of results that are wrong in no way that is known, on 20 seeds"""
    every = [*all_calls(function, torch.float32)]
    for seed in range(20):
        call, expected = every[seed % len(every)]
        for one in candidates.MODELS[function].misconceptions:
            for outputs in itertools.islice(one.model(call), seed % 3, seed % 3 + 1):
                if [x.shape for x in outputs] != [want.value.shape for want in expected.values()]:
                    continue
                noise = normal(rng(seed), 1).item() if seed % 2 else 0.0
                got = [
                    (x + 0.1 * noise * (x - want.value)).to(want.dtype)
                    for x, want in zip(outputs, expected.values(), strict=True)
                ]
                if is_wrong(got, expected):
                    assert not any(candidates.SEVERAL in found.name for found in causes([call], got, expected)), (
                        one.name
                    )
