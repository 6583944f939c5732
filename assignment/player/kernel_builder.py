"""Builds jit functions from a submission's text and a table of what their names are bound to.

The submission is not imported, and nothing of its files is executed except the bodies of checked
functions. The table comes from a process that the submission runs in: it may be forged, and a
forgery can only give a kernel other constants or another kernel of the same submission.
"""

import ast
import builtins
import functools
import keyword
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import triton

from assignment import whose
from assignment.protocol.messages import Value
from assignment.protocol.program import DescribedKernel, kernels_in
from assignment.protocol.said import at
from assignment.simulator.scopes import parameters
from assignment.simulator.triton_private import JITCallable, JITFunction

from . import bounds, counterparts, functions, members
from .facades import attributes
from .kernel_table import KernelTable, options
from .source import Definition, Refused, SourceFile
from .syntax import check, name_refused
from .values import Bound, Constant, Unknown, Values, attributes_in

_KNOWN = """len list float int isinstance hasattr range getattr print min max abs bool str tuple sum any all zip
    enumerate sorted reversed locals NotImplementedError ValueError TypeError AssertionError RuntimeError"""
BUILTINS = {name: getattr(builtins, name) for name in _KNOWN.split()}


class Kernels:
    """The kernels of one submission, by number, each built when it is first asked for.

    `sources` is by path such as "cs336_kernels/rmsnorm.py", `jit` is triton.jit.
    """

    def __init__(self, sources: dict[str, str], jit: Callable[..., JITFunction]) -> None:
        bounds.install()
        members.install()
        self._sources = {path: SourceFile(path, text) for path, text in sources.items()}
        self._jit = jit
        self._table = KernelTable()
        self._built: dict[int, JITFunction] = {}
        self._being_built: dict[int, JITFunction] = {}
        self._values = Values(self._known)
        self._fields: set[str] = set()

    def add(self, entries: Sequence[dict[str, Value]]) -> None:
        """Append to the table; entries may refer to each other in any order."""
        self._table.entries += entries
        self._fields |= set(attributes_in(entries))

    def constant(self, value: Value) -> Constant:
        """Return a launch's constexpr or tuple argument; raises Refused.

        Ask for it before the kernel, which may use its fields.
        """
        self._fields |= set(attributes_in(value))
        try:
            for number in kernels_in(value):
                self[number]
            return self._values.value(value)
        except (Unknown, RecursionError, ValueError) as error:
            raise Refused(str(error)) from error

    def __getitem__(self, number: int) -> JITFunction:
        """Return the jit function of this number; raises Refused."""
        if number not in self._built:
            try:
                self._build(number)
            finally:
                self._being_built = {}
        return self._built[number]

    def _known(self, number: int) -> JITFunction:
        if number in self._built:
            return self._built[number]
        if number not in self._being_built:
            raise Unknown("a default value refers to a kernel that is not built before it: pass it as an argument")
        return self._being_built[number]

    def _build(self, number: int) -> None:
        """Build a kernel and those it refers to: functions first, then their names' values."""
        made = []
        for n in self._table.reached(number, self._built):
            entry = self._table.entry(n)
            definition = self._definition(entry)
            namespace = _namespace(entry)
            self._being_built[n] = self._guarded(definition, self._function, entry, definition, namespace)
            made.append((entry, definition, namespace))
        for entry, definition, namespace in made:
            self._guarded(definition, self._bind, entry["names"], namespace)
        self._built |= self._being_built

    def _definition(self, entry: DescribedKernel) -> Definition:
        """Return the function that an entry describes, parsed and checked."""
        source = self._sources.get(entry["file"])
        if source is None:
            raise Refused("a kernel must stand in a file of the submission", at(entry["file"][:200], entry["line"]))
        if source.sha256 != entry["sha256"]:
            changed = "the file was changed after it was handed in: a kernel must stand in the file as it is"
            raise source.refused(changed, entry["line"], entry["name"])
        definition = source.find(entry["name"], entry["line"])
        self._guarded(definition, self._check, entry, definition)
        return definition

    def _check(self, entry: DescribedKernel, definition: Definition) -> None:
        names = {name for name, binding in entry["names"].items() if counterparts.is_of_torch(binding)}
        if found := counterparts.instead_of(names & _used(definition), definition.tree):
            raise definition.refused(*found)
        check(definition, attributes() | self._fields)

    def _guarded(self, definition: Definition, make: Callable[..., Any], *args: Any) -> Any:
        """Return make(); adds the place to any error in the table or the function."""
        try:
            return make(*args)
        except Refused:
            raise
        except Unknown as error:
            raise definition.refused(str(error), _use(definition, error)) from error
        except Exception as error:
            if whose.is_ours(error):
                raise
            raise definition.refused(f"the kernel cannot be built: {type(error).__name__}: {error}") from error

    def _function(self, entry: DescribedKernel, definition: Definition, namespace: dict[str, Bound]) -> JITFunction:
        """Return the jit function, with its names not yet bound."""
        early = {name: binding for name, binding in entry["names"].items() if next(kernels_in(binding), None) is None}
        used = _used(definition)
        self._bind({name: binding for name, binding in early.items() if "unknown" not in binding}, namespace)
        for name in early.keys() & used:
            self._values.bound(name, early[name])
        is_plain = entry["kind"] == "constexpr_function"
        function = functions.compiled(definition, namespace, is_plain)
        functions.set_defaults(function, definition, {k: self._values.value(v) for k, v in entry["defaults"].items()})
        function.__annotations__ = functions.annotations(definition, namespace)
        if not definition.is_source_of(function):
            raise ValueError("its lines cannot be told from those around it: leave an empty line after it")
        if not is_plain and entry["kind"] != "jit":
            raise ValueError(f"expected a @triton.jit function, got {entry['kind'][:50]}")
        wrap = triton.constexpr_function if is_plain else functools.partial(self._jit, **options(entry["options"]))
        made = whose.theirs(wrap, function)
        if isinstance(made, JITCallable):  # its tree is the checked one
            made.parse = functools.partial(functions.for_compiler, definition)
        return made

    def _bind(self, names: Mapping[str, Value], namespace: dict[str, Bound]) -> None:
        for name, binding in names.items():
            if not name.isidentifier() or keyword.iskeyword(name) or name_refused(name):
                raise Unknown(f"the name {name[:50]} is reserved: choose another one")
            if isinstance(binding, dict) and "unknown" in binding:
                continue
            try:
                namespace[name] = self._values.bound(name, binding)
            except Unknown:
                if not isinstance(binding, dict) or "namedtuple" not in binding:  # that host code alone may use
                    raise


def _namespace(entry: DescribedKernel) -> dict[str, Bound]:
    module = entry["file"].removesuffix(".py").replace("/", ".")
    known = BUILTINS if entry["kind"] == "jit" else BUILTINS | {"range": bounds.short_range, "getattr": members.member}
    return {"__builtins__": known, "__name__": module, bounds.NAME: bounds.bounded, members.NAME: members.member}


def _used(definition: Definition) -> set[str]:
    """Return the names that the function's body reads, without those of its own variables."""
    nodes = [node for statement in definition.tree.body for node in ast.walk(statement) if isinstance(node, ast.Name)]
    own = {arg.arg for arg in parameters(definition.tree.args)}
    own |= {node.id for node in nodes if isinstance(node.ctx, ast.Store)}
    return {node.id for node in nodes} - own


def _use(definition: Definition, error: Unknown) -> ast.AST | None:
    """Return where the function uses the name in an error."""
    words = str(error).replace(",", " ").split()
    nodes = (node for node in ast.walk(definition.tree) if isinstance(node, ast.Name))
    return next((node for node in nodes if node.id in words), None)
