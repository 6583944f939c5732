"""The wall: which kernels are built of a submission's text, and that the others are refused before anything runs."""

import ast

import pytest
import triton

from assignment.player.kernel_builder import Kernels
from assignment.player.source import Refused
from assignment.simulator.triton_private import IS_CLOSE_TO_PYTHON, IS_CLOSER_TO_PYTHON
from assignment.tests.described import FILE, body, built, entry

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
    "in a walrus": "(y := x.__class__)",
    "attribute of a walrus": "(y := x).__class__",
    "reserved name in a walrus": "(__simulator__ := x)",
    "dunder in a list's condition": "[y for y in x if y.__class__]",
    "attribute in a list's tuple": "[y for y, x.shape in n]",
}
if IS_CLOSE_TO_PYTHON:
    del ESCAPES["walrus"]
if IS_CLOSER_TO_PYTHON:
    del ESCAPES["condition in a list"]


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
    "dunder as the rest": "*__x",
    "annotation of the rest that calls": "*x: print(1)",
}
if IS_CLOSE_TO_PYTHON:
    del PARAMETERS["positional rest"]


@pytest.mark.parametrize("parameters", PARAMETERS.values(), ids=PARAMETERS)
def test_parameters_are_names_and_annotations_are_looked_up(parameters):
    with pytest.raises(Refused, match=f"at {FILE}:1 in kernel"):
        built(body("pass", parameters=parameters))


FILES = {
    "does not parse": "def kernel(x):\n    )",
    "null byte": "def kernel(x):\n    '\0'",
    "surrogate": "def kernel(x):\n    '\ud800'",
    "encoding": "# -*- coding: utf-7 -*-\ndef kernel(x):\n    return +AGE-\n",
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
