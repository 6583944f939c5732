"""What Triton's compiler refuses, the simulator refuses; what it takes, the simulator takes: data/language.txt."""

import functools
import importlib.metadata
import json
import os
import tempfile
from pathlib import Path

import pytest

from assignment.tests.data.language import bodies
from assignment.tests.forked import python

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).parent / "data" / "language.py"
NAMES = tuple(bodies())

LAXER = {  # the simulator runs a kernel one way at a time
    "if_defines_both_types_one_path": "no program takes the other branch",
    "shapes_from_if": "no program takes the other branch",
    "if_changes_type_not_taken": "no program takes the branch",
    "return_early_type": "no program takes the branch",
    "call_early_mixed": "no program comes to the other return",
    "call_static_early": "no program comes to the other return",
    "return_value_mixed": "no program comes to the other return",
    "return_none_and_value": "no program comes to the other return",
    "loop_changes_type_none_turns": "the loop's body does not run",
    "call_recursive": "what follows a return that is taken does not run",
    "runtime_recursion": "the recursion ends",
}
STRICTER = {  # of no use in a kernel, and refused before the simulator sees it
    "list_comprehension_leaks": "the compiler keeps the variable of a list",
    "list_comprehension_if_runtime": "the compiler takes a tensor for true",
}
VERSION = tuple(int(part) for part in importlib.metadata.version("triton").split(".")[:2])
if VERSION < (3, 7):
    LAXER |= {
        "tl_cdiv_constexpr": "tl.cdiv of constants is one since 3.7",
        "constexpr_of_tensor_plus": "a tensor in a tl.constexpr is of use since 3.7",
        "global_word_as_parameter": "functions return strings since 3.7",
        "global_type_as_parameter": "functions return dtypes since 3.7",
    }
if VERSION >= (3, 8):
    STRICTER |= {"named_in_and": "a walrus in an operand that may be left out: assign on a line of its own"}
if VERSION < (3, 8):
    LAXER |= {"global_index_as_shape": "a tuple in a constant tuple is a shape since 3.8"}
if VERSION < (3, 9):
    STRICTER |= {"list_comprehension_if_false": "the compiler passes over an `if` in a list"}
PHRASES = {  # the compiler's own words
    "if_defines": "v is not defined",
    "if_defines_both_types": "Mismatched type for v between then block (fp32) and else block (int32)",
    "if_changes_type": "initial value for `v` is of type int32",
    "if_changes_type_else": "but the else block redefines it as fp32",
    "if_constexpr_after": "V is not defined",
    "if_string_cond": "`if` conditionals can only accept values of type {NoneType, bool, int}, not objects of type str",
    "loop_changes_type": "Loop-carried variable v has initial type int32 but is re-assigned to fp32 in loop!",
    "loop_changes_shape": "Loop-carried variable v has initial type <['16'], fp32> but is re-assigned to <['1', '16']",
    "loop_defines": "v is not defined",
    "loop_reads_previous": "previous is not defined",
    "loop_none": "Loop carried variable v is not a triton value",
    "constexpr_twice": "V is already defined. constexpr cannot be reassigned.",
    "return_in_loop_if": "Cannot have `return` statements inside `while` or `for` statements in triton.",
    "float_of_tensor": "float() argument must be a string or a real number, not 'tensor'",
    "int_of_tensor": "not 'tensor'",
    "triton_cdiv_tensor": "Did you forget to add @triton.jit ?",
    "ternary_types": "Ternary expression with dynamic condition has inconsistent types fp32 and int32",
    "ternary_none": "cannot convert None of type <class 'NoneType'> to tensor",
    "fstring_runtime": "Cannot evaluate f-string containing non-constexpr conversion values",
    "static_assert_runtime": "Assertion condition could not be determined at compile-time.",
    "string_variable": "cannot convert a of type <class 'str'> to tensor",
    "if_undefined_not_taken": "no_such_name is not defined",
    "if_global_not_taken": "Cannot access global variable GLOBAL from within @jit'ed function",
    "list_comprehension_range": "only tuple comprehensions are supported",
}
ELSEWHERE = {  # the compiler names another line
    "for_range_variable": "where the range is made",
    "while_break": "the `break`, not the condition",
    "return_in_loop": "the loop",
    "return_in_loop_static_if": "the loop",
    "call_return_loop": "the loop",
    "while_return": "the function",
    "call_early_nothing_and_value": "the function that is called",
    "global_as_parameter": "the function that is called",
    "global_namedtuple_as_constexpr_parameter": "the function that is called",
}
if VERSION < (3, 7):
    ELSEWHERE |= dict.fromkeys(
        ["call_star_parameter", "call_star_parameter_none", "call_star_argument"], "where the function is called"
    )


@functools.cache
def verdicts(which: str) -> dict[str, tuple[str, str] | None]:
    """By kernel, None or a message and a line: of the "compiler" or the "simulator"."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    for _ in range(3):  # over what it refuses, Triton's verifier dies now and then
        with tempfile.TemporaryDirectory() as folder:
            done = python(SCRIPT, which, folder, cwd=ROOT, env=environment, timeout=300)
        if done.returncode >= 0:
            break
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, tuple[str, str] | None] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", NAMES)
def test_as_the_compiler(name: str) -> None:
    """Both take a kernel, or both refuse it, at the same line."""
    compiler, simulator = verdicts("compiler")[name], verdicts("simulator")[name]
    if name in LAXER or name in STRICTER:
        assert bool(compiler) is (name in LAXER)
        assert bool(simulator) is (name in STRICTER), "the simulator has learned it: take the name from the list"
    elif compiler is None:
        assert simulator is None, f"the compiler takes it, the simulator does not: {simulator}"
    else:
        assert simulator, f"the compiler refuses it, the simulator does not: {compiler}"
        if compiler[1]:
            assert (simulator[1] == compiler[1]) is (name not in ELSEWHERE), f"{simulator}, {compiler}"


@pytest.mark.parametrize("name", PHRASES)
def test_in_the_words_of_the_compiler(name: str) -> None:
    """What a student reads is what the compiler will say."""
    for which in ("compiler", "simulator"):
        told = verdicts(which)[name]
        assert told is not None
        assert PHRASES[name] in told[0]


def test_each_list_is_of_kernels() -> None:
    """Nothing is excused that is not there."""
    assert {*LAXER, *STRICTER, *PHRASES, *ELSEWHERE} <= set(NAMES)
