"""The wall: the table that describes kernels, and what a launch passes, hold nothing but names and constants."""

from typing import Any

import pytest
import triton

from assignment.player.kernel_builder import Kernels
from assignment.player.source import Refused
from assignment.tests.described import FILE, TL, body, built, entry

PLAIN = body("y = x + N", "tl.store(x, helper(y))")


def nested(depth):
    """A tuple in a tuple in a tuple."""
    value: Any = 1
    for _ in range(depth):
        value = {"tuple": [value]}
    return value


BINDINGS = {
    "Triton's os": {"triton": "triton.language.core.os"},
    "Triton's builtin": {"triton": "triton.language.core.builtin"},
    "Triton's runtime": {"triton": "triton.runtime.jit.os"},
    "os": {"triton": "os.system"},
    "dunder of Triton's": {"triton": "triton.language.__loader__"},
    "no dots": {"triton": "print"},
    "not a name": {"triton": 5},
    "module os": {"module": "os"},
    "module of Triton's": {"module": "triton.runtime.jit"},
    "unhashable module": {"module": []},
    "unknown": {"unknown": "numpy.ndarray"},
    "plain function": {"unknown": "cs336_kernels.x.helper"},
    "no such kind": {"eval": "1"},
    "two kinds": {"constant": 1, "constexpr": 1},
    "not a binding": "1",
    "nothing": {},
    "huge number": {"constant": 2**64},
    "huge negative number": {"constexpr": -(2**70)},
    "huge string": {"constexpr": "a" * 1_001},
    "object": {"constexpr": {"a": 1}},
    "bare list": {"constant": [1]},
    "deep tuple": {"constant": nested(50)},
    "very deep tuple": {"constant": nested(5_000)},
    "long tuple": {"constant": {"tuple": [1] * 1_001}},
    "no float": {"constant": {"float": "1e999"}},
    "no dtype": {"dtype": "tensor"},
    "dtype with dots": {"dtype": "core.os"},
    "dtype of too many pointers": {"dtype": "*" * 1_000 + "fp32"},
    "no kernel": {"kernel": 7},
    "negative kernel": {"kernel": -1},
    "boolean kernel": {"kernel": True},
    "text as a kernel": {"kernel": "0"},
    "dunder in a namespace": {"namespace": {"__class__": {"constant": 1}}},
    "namespace without names": {"namespace": 5},
    "os in a namespace": {"namespace": {"a": {"module": "os"}}},
    "field with code": {"namedtuple": {"name": "A", "fields": ["a=print(1)"]}},
    "field twice": {"namedtuple": {"name": "A", "fields": ["a", "a"]}},
    "keyword as a field": {"namedtuple": {"name": "A", "fields": ["class"]}},
    "dunder as a field": {"namedtuple": {"name": "A", "fields": ["__new__"]}},
    "class with code": {"namedtuple": {"name": "A(print())", "fields": ["a"]}},
    "class without fields": {"namedtuple": {"name": "A"}},
    "too few values": {"constant": {"namedtuple": {"name": "A", "fields": ["a"]}, "values": []}},
}


@pytest.mark.parametrize("binding", BINDINGS.values(), ids=BINDINGS)
def test_a_table_that_lies_is_refused(binding):
    with pytest.raises(Refused, match=f"at {FILE}:|at the table"):
        built(PLAIN, {"tl": TL, "N": {"constexpr": 1}, "helper": binding})


ENTRIES = {
    "another hash": {"sha256": "0" * 64},
    "another line": {"line": 2},
    "far line": {"line": 10**9},
    "negative line": {"line": -1},
    "no number": {"line": "1"},
    "another name": {"name": "other"},
    "local name": {"name": "f.<locals>.kernel"},
    "another file": {"file": "../x.py"},
    "no file": {"file": None},
    "another kind": {"kind": "eval"},
    "more than is known": {"code": "print()"},
    "default of no parameter": {"defaults": {"x": 1}},
    "default that is no value": {"defaults": {"x": {"unknown": "a"}}},
    "hook as an option": {"options": {"launch_metadata": "print"}},
    "repr as an option": {"options": {"repr": "print"}},
    "number as debug": {"options": {"debug": 5}},
    "code as an option": {"options": {"do_not_specialize": [{"a": 1}]}},
    "reserved name": {"names": {"__builtins__": {"module": "math"}}},
    "builtins by a name": {"names": {"__import__": {"module": "math"}}},
    "no name": {"names": {"a b": {"module": "math"}}},
    "keyword as a name": {"names": {"class": {"module": "math"}}},
    "no names": {"names": [1]},
}


@pytest.mark.parametrize("changes", ENTRIES.values(), ids=ENTRIES)
def test_an_entry_that_does_not_fit_the_file_is_refused(changes):
    with pytest.raises(Refused):
        built(body("pass"), **changes)
    assert built(body("pass")).arg_names == ["x"]


def test_a_default_that_needs_itself_is_refused():
    source = "def kernel(x, f=1):\n    return x\n"
    with pytest.raises(Refused, match="default value refers to a kernel"):
        built(source, defaults={"f": {"kernel": 0}})


CONSTANTS = {
    "an object": {"a": 1},
    "no kernel": {"kernel": 3},
    "reserved field": {"namedtuple": {"name": "A", "fields": ["__class__"]}, "values": [1]},
}


@pytest.mark.parametrize("value", CONSTANTS.values(), ids=CONSTANTS)
def test_a_launch_passes_constants_and_no_objects(value):
    with pytest.raises(Refused):
        Kernels({FILE: PLAIN}, triton.jit).constant(value)


def test_the_fields_of_a_launchs_tuple_can_be_used():
    source = body("return x.first")
    kernels = Kernels({FILE: source}, triton.jit)
    kernels.add([entry(source, {})])
    with pytest.raises(Refused, match=r"\.first"):
        kernels[0]
    pair: Any = kernels.constant(
        {"namedtuple": {"name": "A", "fields": ["first", "function"]}, "values": [1, {"kernel": 0}]}
    )
    assert pair == (1, kernels[0])
    assert pair.first == 1
