"""`python -m assignment.tests.upgrade`: what an installed Triton has not, has otherwise, or has new.

It compares the installed Triton with simulator/triton_private.py, which imports what the simulator takes of it, and
with the parameters in data/of_triton.py, `tl` with the table of its members, and its compiled part with what stands in
for that. Exit status 1 where something is to be done.
"""

import argparse
import ast
import importlib
import importlib.metadata
import inspect
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assignment.tests.data.of_triton import INHERITED, SIGNATURES, UNREACHED

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "assignment" / "simulator" / "triton_private.py"
ASKED = re.compile(r"builder\.((?:create|get)_\w+)")  # how Triton's front end calls a builder
FRONT_END = ("semantic", "core", "standard", "math")
_LINE = re.compile(r"(\d+\.\d+) (\S+) \((.*?)\): (.*)")


def imported() -> Iterator[tuple[str, str]]:
    """Yield module and name of each import from Triton in triton_private.py, whether it is there or not."""
    for node in ast.walk(ast.parse(HOME.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "triton":
            yield from ((str(node.module), alias.name) for alias in node.names)


def missing() -> list[str]:
    """Return what is imported and is not there."""
    return [f"{module}.{name}" for module, name in imported() if not _is_there(module, name)]


def _is_there(module: str, name: str) -> bool:
    try:
        return hasattr(importlib.import_module(module), name) or bool(importlib.import_module(f"{module}.{name}"))
    except ImportError:
        return False


def known(signatures: str, version: tuple[int, ...]) -> dict[str, str]:
    """Return what a version's names should have for parameters, by "owner.name" or name."""
    found: dict[str, str] = {}
    lines = re.sub(r"\n    ", " ", signatures.strip()).splitlines()
    parsed = [(tuple(map(int, m[1].split("."))), m) for line in lines if (m := _LINE.fullmatch(line))]
    for since, match in sorted(parsed, key=lambda pair: pair[0]):
        if since <= version:
            owner = "" if match[2] == "-" else f"{match[2]}."
            found |= {f"{owner}{name}": match[3] for name in match[4].split()}
    return found


def changed(private: Any, version: tuple[int, ...]) -> list[str]:
    """Return what has other parameters than those listed for a version, and what is listed and gone."""
    lines = []
    for name, parameters in known(SIGNATURES, version).items():
        owner, _, last = name.rpartition(".")
        member = getattr(getattr(private, owner), last, None) if owner else getattr(private, last, None)
        now = "is gone" if member is None else f"({_parameters(member)})"
        if now != f"({parameters})":
            lines.append(f"{name}{now if now[0] == '(' else f' {now}'}, listed ({parameters})")
    return lines


def _parameters(function: Any) -> str:
    signature = inspect.signature(function)
    return " ".join(name for name in signature.parameters if name != "self")


def unanswered(builder: Any) -> list[str]:
    """Return what Triton's front end asks a builder for, and no builder has."""
    texts = [inspect.getsource(importlib.import_module(f"triton.language.{name}")) for name in FRONT_END]
    asked = {name for text in texts for name in ASKED.findall(text)}
    asked -= {*UNREACHED.split()}
    return sorted(name for name in asked if not hasattr(builder, name) and not name.endswith("_ty"))


def inherited(builder: Any, private: Any) -> list[str]:
    """Return the methods of Triton's interpreter that ours takes over as they are, and that are not known."""
    classes = [cls for cls in type(builder).__mro__ if cls.__module__.startswith("assignment.")]
    own = {name for cls in classes for name in vars(cls)}
    theirs = {name for name, member in vars(private.InterpreterBuilder).items() if inspect.isfunction(member)}
    return sorted(theirs - own - {*INHERITED.split()} - {"__init__"})


def new_in_tl() -> list[str]:
    """Return public members of `tl`, `tl.math` and `tl.tensor` that the table of members has no use of."""
    from assignment.tests.constructs.checks import members

    return members.without_use()


def otherwise_in_stand_in() -> list[str]:
    """Return what stands in for Triton's compiled part has otherwise; of versions before it there is none."""
    from assignment.simulator import libtriton
    from assignment.tests import standing_in

    version = importlib.metadata.version("triton")
    if _version(version) < min(map(_version, libtriton.VERSIONS)):
        return []
    named = [] if version in libtriton.VERSIONS else [f"VERSIONS lack {version}"]
    return [*named, *standing_in.differences()]


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m assignment.tests.upgrade", description=__doc__)
    help = "compare with the parameters of this version, such as 3.7: what it took to come from there"
    parser.add_argument("--version", type=_version, help=help)
    return parser.parse_args(arguments)


def main() -> int:
    options = parse_arguments(sys.argv[1:])
    os.environ["TRITON_INTERPRET"] = "1"
    found = {"missing: imported by simulator/triton_private.py": missing()}
    if not any(found.values()):
        from assignment.simulator import install

        install()
        from assignment.simulator import triton_private as private
        from assignment.simulator.semantic import builder

        found |= {
            "other parameters: tests/data/of_triton.py, SIGNATURES": changed(
                private, options.version or private.VERSION
            ),
            "asked of the builder, which has it not: simulator/builder.py": unanswered(builder),
            "taken as it is: override it, or list it in INHERITED": inherited(builder, private),
            "new in tl without an answer: tests/constructs/checks/members.py": new_in_tl(),
            "otherwise in what stands in for the compiled part: simulator/libtriton.py": otherwise_in_stand_in(),
        }
    import triton

    print(f"Triton {triton.__version__}")
    for what, names in found.items():
        print(f"  {what}: {len(names) or 'nothing'}", *(f"    {name}" for name in names), sep="\n")
    return 1 if any(found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
