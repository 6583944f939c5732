"""Fixtures of the specification. `run`, which calls the submission, comes from the grader's pytest plugin."""

import pytest

from tests import compare, families


@pytest.fixture
def memory_bytes(run):
    """How far a view may reach where the submission runs."""
    return run.memory_bytes


@pytest.fixture
def check(run, record_property):
    """Call a function of the submission and compare its result with what `expected()` says.

    This and the fixtures below ask what is expected only when there is a result.
    """

    def check(function, *tensors, expected, **options):
        got = run(function, *tensors, **options)
        record_property("margin", compare.worst_margin(got, expected(), run.has_exact_margins))

    return check


@pytest.fixture
def costs_of(run, record_property):
    """Call a function of the submission, compare its result with what `expected()` says, and return its costs."""

    def costs_of(function, *tensors, expected, **options):
        costs = run.costs(function, *tensors, **options)
        why = "costs are counted of right results; this one is wrong"
        record_property("margin", families.margin_of_right(costs.results, expected(), why, run.has_exact_margins))
        return costs

    return costs_of


@pytest.fixture
def check_gradients(run, record_property):
    """Call a differentiable function and compare the gradients of its inputs, every time that they are asked for.

    expected() holds the gradients of all inputs, in their order; wrt says for which of them to ask (default: all). grad
    is the gradient of the result; summed, .sum().backward() makes it, with strides of 0.
    """

    def check(function, *tensors, grad, expected, summed=False, wrt=None, **request):
        wrt = range(len(tensors)) if wrt is None else wrt
        found = run.gradients(function, *tensors, grad=None if summed else grad, wrt=wrt, **request)
        wanted = {name: gradient for i, (name, gradient) in enumerate(expected().items()) if i in wrt}
        for got in found:
            margin = compare.worst_margin(got if len(wanted) > 1 else got[0], wanted, run.has_exact_margins)
            record_property("margin", margin)

    return check


@pytest.fixture
def check_contract(run, record_property):
    """The promises beside the values: inputs untouched, and no memory of an earlier call.

    The function is called, its inputs are overwritten in place with a second problem, and it is called again. Both
    results must be right, the first one still so after the second call; no result may be a view of an input. The same
    holds where the second problem is the first again. What is expected is asked of two functions.
    """

    def check(function, first, second, expected_first, expected_second, **options):
        for other, expected_other in ((second, expected_second), (first, expected_first)):
            results = run.again(function, first, other, **options)
            for got, expected in zip(results, (expected_first, expected_other), strict=True):
                record_property("margin", compare.worst_margin(got, expected(), run.has_exact_margins))

    return check
