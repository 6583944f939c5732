"""The wall: which kernels are built of a submission's text, and that the others are refused before anything runs."""

import ast
import functools
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
import triton

from assignment.attacks import bugs
from assignment.player.kernels import Kernels
from assignment.player.source import Refused
from assignment.submission import Submission, read
from assignment.tests.forked import python

ROOT = Path(__file__).parents[2]
DATA = Path(__file__).parent / "data" / "player"
FILE = "cs336_kernels/x.py"
TL = {"module": "triton.language"}
NAMES = {"tl": TL, "triton": {"module": "triton"}, "math": {"module": "math"}}


def entry(source, names=None, **changes):
    """A description of the last function of a source."""
    try:
        functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
        function = max((f for f in functions if f.name == "kernel"), key=lambda f: f.lineno)
        defaults = {arg.arg: 1 for arg in function.args.args[len(function.args.args) - len(function.args.defaults) :]}
        line = function.lineno
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        line, defaults = 1, {}
    sha256 = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()
    described = {"file": FILE, "line": line, "name": "kernel", "sha256": sha256, "kind": "jit"}
    return described | {"options": {}, "defaults": defaults, "names": NAMES if names is None else names} | changes


def built(source, names=None, **changes):
    kernels = Kernels({FILE: source}, triton.jit)
    kernels.add([entry(source, names, **changes)])
    return kernels[0]


def body(*lines, parameters="x"):
    return "\n".join([f"def kernel({parameters}):", *(f"    {line}" for line in lines), ""])


ESCAPES = {
    # attributes that lead out of Triton
    "class of a tuple": "().__class__.__base__.__subclasses__()",
    "class of a tensor": "x.__class__",
    "globals of a function": "tl.sum.fn.__globals__",
    "jit function's python": "tl.sum.fn(x)",
    "globals of a builtin": "tl.exp2.__globals__",
    "os of core": "tl.core.os.system('id')",
    "builtin of core": "tl.core.builtin(x)",
    "wraps of math": "tl.math.wraps(x)",
    "sys of core": "tl.core.sys.modules",
    "runtime of triton": "triton.runtime.driver",
    "compiler of triton": "triton.compile(x)",
    "knobs": "triton.knobs.compilation",
    "jit of triton": "triton.jit(x)",
    "bitcode from a path": "tl.core.extern_elementwise('a', '/etc/passwd', x)",
    "values behind a tensor": "x.handle.data",
    "data": "y = x.data",
    "builder": "x.builder",
    "semantic": "x._semantic",
    "mro": "tl.tensor.mro()",
    "init of a constexpr": "tl.constexpr(1).__init__(2)",
    "dict of a module": "tl.__dict__",
    "loader of a module": "math.__loader__",
    "rewriter": "tl.sum.rewriter",
    "run": "tl.sum.run(x)",
    "parse": "tl.sum.parse()",
    "warmup": "tl.sum.warmup(x)",
    "generator's frame": "x.gi_frame",
    "code": "tl.sum.co_consts",
    # getattr
    "getattr of a dunder": "getattr(x, '__class__')",
    "getattr of a handle": "getattr(x, 'handle')",
    "getattr of a computed name": "getattr(x, '__cl' + 'ass__')",
    "getattr of a variable": "getattr(x, n)",
    "getattr of an f-string": "getattr(x, f'{n}')",
    "getattr unpacked": "getattr(*n)",
    "getattr by keyword": "getattr(x, 'T', default=1)",
    "getattr by another name": "g = getattr",
    "getattr as an argument": "tl.map_elementwise(getattr, x)",
    "getattr in a tuple": "(getattr, 1)[0](x, '__class__')",
    "hasattr of a dunder": "hasattr(x, '__class__')",
    "fullwidth letters": "x.ｆn",
    "fullwidth dunder": "x.__ｃlass__",
    # strings
    "format": "'{0.__class__}'.format(x)",
    "format_map": "'{x}'.format_map(x)",
    "conversion": "f'{x!r}'",
    "format specification": "f'{x:1000000000}'",
    "nested format specification": "f'{x:{n}}'",
    "dunder in an f-string": "f'{x.__class__}'",
    "padding": "'a'.ljust(1000000000)",
    "encode": "'a'.encode()",
    "bytes": "b'a'",
    # calls
    "keyword of Triton's own": "tl.load(x, _semantic=n)",
    "keywords unpacked": "tl.load(x, **n)",
    "dict unpacked": "tl.load(x, **{'_semantic': n})",
    # names
    "import": "__import__('os')",
    "builtins": "__builtins__",
    "simulator": "__simulator__.bind(x)",
    "bounded": "__bounded__ = x",
    "locals": "locals()",
    "dunder as a variable": "__name__ = 1",
    # statements and expressions that are not Triton's
    "lambda": "f = lambda: x",
    "walrus": "(y := x)",
    "dict": "{'a': x}",
    "set": "{x}",
    "set of a loop": "{y for y in x}",
    "dict of a loop": "{y: y for y in x}",
    "generator": "list(y for y in x)",
    "yield": "yield x",
    "yield from": "yield from x",
    "await": "await x",
    "import statement": "import os",
    "import from": "from os import system",
    "global": "global x1",
    "delete": "del x",
    "with": "with tl.open(x): pass",
    "try": "try: pass\n    except ValueError as e: e.__traceback__",
    "class": "class A: pass",
    "nested def": "def f(): pass",
    "decorated nested def": "@tl.foo\n    def f(): pass",
    "match": "match x:\n        case tl.tensor(handle=h): pass",
    "raise of something": "raise x",
    "raise with a cause": "raise ValueError('') from x",
    "matrix product": "x @ x",
    "complex": "1j",
    # stores
    "attribute store": "tl.exp2 = x",
    "attribute of an attribute": "tl.math.exp = x",
    "augmented attribute": "x.shape += 1",
    "attribute of a loop": "for x.shape in range(3): pass",
    "attribute in a tuple": "x.shape, y = 1, 2",
    "annotated attribute": "x.shape: tl.constexpr = 1",
    "subscript store": "x[0] = 1",
    "augmented subscript": "x[0] += 1",
    "starred store": "a, *b = x",
    # comprehensions
    "condition in a list": "[y for y in x if y]",
    "list of two loops": "[y for z in x for y in z]",
    "attribute of a list's loop": "[1 for x.shape in n]",
    "dunder in a list": "[y.__class__ for y in x]",
    # sizes
    "huge number": "y = 0x1" + "0" * 16,
    "huge string": "y = '" + "a" * 20_000 + "'",
    "deep expression": "y = " + "-" * 200 + "x",
    "long sum": "y = " + "+".join(["x"] * 400),
    # annotations of variables
    "annotation that calls": "y: tl.core.os.system('id') = 1",
    "annotation with a dunder": "y: x.__class__ = 1",
    "dead branch": "if False:\n        x.__class__",
    "in a slice": "x[x.__class__:]",
    "in an assertion": "assert x, x.__class__",
    "in a keyword": "tl.load(x, mask=x.__class__)",
}


@pytest.mark.parametrize("line", ESCAPES.values(), ids=ESCAPES)
def test_what_may_not_stand_in_a_kernel_is_refused_while_it_is_parsed(line):
    """In a sentence that says what to write, with the line's place in the second line."""
    with pytest.raises(Refused) as refused:
        built(body("n = 1", line))
    sentence, place = str(refused.value).split("\n", 1)
    assert ": " in sentence
    assert "cannot be built" not in sentence
    assert place.startswith(f"  at {FILE}:")
    assert " in kernel: " in place


PARAMETERS = {
    "positional rest": "*x",
    "keyword rest": "**x",
    "dunder": "__x",
    "annotation that calls": "x: print(1)",
    "annotation with a dunder": "x: tl.__dict__",
    "annotation with a lambda": "x: (lambda: 1)",
    "annotation with a walrus": "x: (y := 1)",
}


@pytest.mark.parametrize("parameters", PARAMETERS.values(), ids=PARAMETERS)
def test_parameters_are_names_and_annotations_are_looked_up(parameters):
    with pytest.raises(Refused, match=f"at {FILE}:1 in kernel"):
        built(body("pass", parameters=parameters))


FILES = {
    "does not parse": "def kernel(x):\n    )",
    "null byte": "def kernel(x):\n    '\0'",
    "surrogate": "def kernel(x):\n    '\ud800'",
    "encoding": "# -*- coding: utf-7 -*-\ndef kernel(x):\n    pass\n",
    "deep parentheses": "def kernel(x):\n    y = " + "(" * 10_000 + "1" + ")" * 10_000,
    "deep negation": "def kernel(x):\n    y = " + "-" * 10_000 + "1",
    "deep attributes": "def kernel(x):\n    y = x" + ".T" * 10_000,
    "deep blocks": "".join(" " * i + "if x:\n" for i in range(150)),
    "async": "async def kernel(x):\n    pass\n",
    "lambda": "kernel = lambda x: x\n",
    "no such function": "def other(x):\n    pass\n",
    "def on two lines": "def \\\n kernel(x):\n    pass\n",
    "too large": "def kernel(x):\n    pass\n" + "#" * 1_000_000,
    "no def but text": "'''\ndef kernel(x):\n    pass\n'''\n",
}


@pytest.mark.parametrize("source", FILES.values(), ids=FILES)
def test_a_file_in_which_no_kernel_can_be_found_is_refused(source):
    with pytest.raises(Refused, match=f"at {FILE}:"):
        built(source, line=2 if source.startswith("#") else 1)


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
    "handle in a namespace": {"namespace": {"handle": {"constant": 1}}},
    "code in a namespace": {"namespace": {"fn": {"constant": 1}}},
    "namespace without names": {"namespace": 5},
    "os in a namespace": {"namespace": {"a": {"module": "os"}}},
    "field fn": {"namedtuple": {"name": "A", "fields": ["fn"]}},
    "field format": {"namedtuple": {"name": "A", "fields": ["format"]}},
    "field gi_frame": {"namedtuple": {"name": "A", "fields": ["gi_frame"]}},
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


@pytest.mark.parametrize("name", ["__builtins__", "__bounded__", "__x", "locals"])
def test_a_function_of_a_reserved_name_is_refused(name):
    with pytest.raises(Refused, match="is reserved"):
        built(f"def {name}(x):\n    pass\n", name=name)


def test_a_function_does_not_take_the_place_of_what_it_is_bound_to():
    source = "def kernel(x):\n    return kernel.cdiv(x, 2)\n"
    kernel = built(source, {"kernel": {"module": "triton"}})
    assert kernel.fn.__globals__["kernel"].cdiv is triton.cdiv


def test_defaults_and_decorators_are_never_evaluated(capfd):
    source = "@print('decorator')\n@triton.jit\ndef kernel(x, y=print('default')):\n    pass\n"
    kernel = built(source, line=1)
    assert kernel.signature.parameters["y"].default == 1
    assert "print" not in ast.dump(kernel.parse())
    assert capfd.readouterr().out == ""


def test_the_compiler_gets_the_tree_that_was_checked_whatever_the_text_looks_like_to_a_pattern():
    """Triton looks for the first line that begins with `def`: here it stands in a docstring."""
    text = "def factory():\n    def kernel(x):\n        '''\ndef evil(x):\n    x.__class__\n'''\n        return x\n"
    kernel = built(text, name="factory.<locals>.kernel", line=2)
    assert kernel.parse().body[0].name == "kernel"
    assert "__class__" not in {n.attr for n in ast.walk(kernel.parse()) if isinstance(n, ast.Attribute)}


SEPARATORS = {"form feed": "\x0c", "vertical tab": "\x0b", "file": "\x1c", "line": "\u2028", "next line": "\x85"}


@pytest.mark.parametrize("separator", SEPARATORS.values(), ids=SEPARATORS)
def test_what_python_takes_for_no_end_of_a_line_is_none(separator):
    source = f"a = '{separator}'  # {separator}\n" + body("return x.T")
    assert built(source).raw_src[0] == "def kernel(x):\n"


@pytest.mark.parametrize("end", ["\r", "\r\n"], ids=["old Macs", "Windows"])
def test_what_python_takes_for_the_end_of_a_line_is_one(end):
    source = f"a = 1{end}" + body("return x.T").replace("\n", end)
    assert built(source).raw_src == ["def kernel(x):\n", "    return x.T\n"]


def test_a_function_that_python_runs_knows_no_builtins_that_lead_out():
    with pytest.raises(ValueError, match="too large"):
        built(body("return tuple(range(10000000000))"), kind="constexpr_function")(1)
    with pytest.raises(ValueError, match="too large"):
        built(body("return [y for y in 'a' * 1000000000]"), kind="constexpr_function")(1)
    function = built(body("return open('/etc/passwd')"), kind="constexpr_function")
    with pytest.raises(NameError, match="open"):
        function(1)
    known = function.fn.__globals__["__builtins__"]
    assert not {"open", "eval", "exec", "compile", "type", "object", "vars", "setattr", "input"} & known.keys()
    assert not [name for name in known if name.startswith("__")]


def test_a_member_of_two_kernels_that_call_each_other_is_built_once():
    source = "def kernel(x):\n    return other(x)\n\n\ndef other(x):\n    return kernel(x)\n"
    kernels = Kernels({FILE: source}, triton.jit)
    kernels.add([entry(source, {"other": {"kernel": 1}}, line=1)])
    with pytest.raises(Refused, match="no kernel number 1"):
        kernels[0]
    kernels.add([entry(source, {"kernel": {"kernel": 0}}, line=5, name="other")])
    assert kernels[0].fn.__globals__["other"] is kernels[1]
    assert kernels[1].fn.__globals__["kernel"] is kernels[0]


def test_a_chain_of_a_thousand_kernels_is_built():
    source = "".join(f"def k{i}(x):\n    return k{i + 1}(x)\n" for i in range(1_000)) + "def k1000(x):\n    return x\n"
    kernels = Kernels({FILE: source}, triton.jit)
    described = entry(source, {}, name="")
    names = [{f"k{i + 1}": {"kernel": i + 1}} if i < 1_000 else {} for i in range(1_001)]
    kernels.add([described | {"name": f"k{i}", "line": 2 * i + 1, "names": names[i]} for i in range(1_001)])
    assert kernels[0].fn.__name__ == "k0"


def test_a_default_that_needs_itself_is_refused():
    source = "def kernel(x, f=1):\n    return x\n"
    with pytest.raises(Refused, match="default value refers to a kernel"):
        built(source, defaults={"f": {"kernel": 0}})


CONSTANTS = {
    "an object": {"a": 1},
    "no kernel": {"kernel": 3},
    "reserved field": {"namedtuple": {"name": "A", "fields": ["fn"]}, "values": [1]},
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
    pair = kernels.constant(
        {"namedtuple": {"name": "A", "fields": ["first", "function"]}, "values": [1, {"kernel": 0}]}
    )
    assert pair == (1, kernels[0])
    assert pair.first == 1


def run(script, *arguments, **environment):
    """What a script of data/player prints, as JSON."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", **environment}
    warnings = ["-W", "error", "-W", "ignore::DeprecationWarning"]  # torch has some of its own
    done = python(*warnings, DATA / script, *arguments, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def variants() -> dict[str, bytes]:
    """The correct variants of all operators, each a module."""
    paths = (ROOT / "assignment/operators").glob("*/staff/variants/[!_]*.py")
    return {path.name: path.read_bytes() for path in paths}


CORPORA = {
    "reference": lambda: read(ROOT / "assignment/reference").files,
    "variants": variants,
    "base": bugs.base,
}


@pytest.mark.parametrize("way", ["simulated", "compiled"])
@pytest.mark.parametrize("files", CORPORA.values(), ids=CORPORA)
def test_every_kernel_that_is_right_is_described_and_built(files, way, tmp_path):
    Submission(files()).stage(tmp_path)
    told = run("every.py", way, tmp_path)
    assert told["refused"] == []
    assert told["built"] >= 7


@functools.cache
def styles():
    return run("styles.py")


STYLES = [
    node.name
    for node in ast.parse((DATA / "styles.py").read_text(encoding="utf-8")).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("check_")
]


@pytest.mark.parametrize("name", STYLES)
def test_in_the_simulator(name):
    assert styles()[name] is None, styles()[name]


def test_a_kernel_compiles_as_the_decorated_one_does():
    told = run("compiles.py")
    assert told["ours"] == told["theirs"]
    assert told["lines"]
    assert {name for name, error in told["bombs"].items() if "too large" in error or "cannot format" in error} == {
        *told["bombs"]
    }
