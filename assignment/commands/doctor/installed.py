"""What is to be said of Python, the system and the packages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from assignment.commands.doctor.facts import PYTHONS, Facts, Library
from assignment.commands.doctor.finding import FAIL, OK, WARN, Finding

CONTAINER = "open this folder in its dev container, .devcontainer/ (VS Code offers it), and run this there"


@dataclass(frozen=True)
class Versions:
    """Of a package: the one that the class uses, and from where to where others were tried."""

    ours: str
    oldest: tuple[int, int]
    newest: tuple[int, int]
    broken_below: tuple[int, int] = (0, 0)


VERSIONS = {
    "torch": Versions("2.13.0", (2, 11), (2, 13)),
    "triton": Versions("3.7.1", (3, 6), (3, 7), broken_below=(3, 6)),  # 3.5 cannot run the simulator
    "numpy": Versions("2.1 or newer", (2, 1), (2, 999)),
}


def python(facts: Facts) -> Finding:
    version = ".".join(map(str, facts.python))
    oldest, newest = PYTHONS
    if facts.implementation == "CPython" and oldest <= facts.python[:2] <= newest:
        return Finding(OK, "Python", version)
    expected = f"expected CPython 3.{oldest[1]} to 3.{newest[1]}"
    return Finding(FAIL, "Python", f"{facts.implementation} {version}; {expected}", by_uv(facts))


def by_uv(facts: Facts) -> str:
    """How to run with the project's own Python and packages."""
    if facts.is_projects:
        return "make the environment anew: uv sync --python 3.13"
    if facts.has_uv:
        return "uv brings the right Python and all packages: uv run grade.py --doctor"
    install = "apt install pipx && pipx install uv" if facts.is_managed else "pip install uv"
    return f"uv brings the right Python and all packages: {install}, then uv run grade.py --doctor"


def system(facts: Facts) -> Finding:
    name = {"Darwin": "macOS"}.get(facts.system, facts.system)
    if facts.system != "Linux":
        advice = f"{CONTAINER}; WSL 2 works too" if facts.system == "Windows" else CONTAINER
        return Finding(FAIL, "system", f"{name}, for which there is no Triton; expected Linux", advice)
    library, version = facts.libc
    if library != "glibc" or numbers(version) < (2, 28):
        have = f"{library or 'another C library'} {version}".strip()
        return Finding(FAIL, "system", f"Linux with {have}; PyTorch needs glibc 2.28 or newer", CONTAINER)
    if facts.machine in ("aarch64", "arm64"):
        found = f"Linux on {facts.machine}, where nobody has tried this; expected x86-64"
        return Finding(WARN, "system", found, f"if anything below is odd, {CONTAINER}")
    if facts.machine not in ("x86_64", "AMD64"):
        found = f"Linux on {facts.machine}, for which there is no PyTorch; expected x86-64"
        return Finding(FAIL, "system", found, "take a machine with an Intel or AMD processor")
    return Finding(OK, "system", f"Linux on x86-64, glibc {version}")


# Packages.


def is_missing(found: Library) -> bool:
    return bool(found.problem) and not found.file


def follows(facts: Facts, name: str) -> bool:
    """Whether a package is broken only because one that it imports is missing, or NumPy broken."""
    problem = facts.libraries[name].problem
    missing = [other for other, found in facts.libraries.items() if is_missing(found)]
    return any(f"No module named '{other}'" in problem for other in missing) or (
        name != "numpy" and problem == facts.libraries["numpy"].problem != ""
    )


def package(facts: Facts, name: str) -> Finding:
    """torch, triton or numpy."""
    found, versions = facts.libraries[name], VERSIONS[name]
    if found.problem:
        return broken(facts, name)
    version = numbers(found.version)
    if versions.oldest <= version <= versions.newest:
        return Finding(OK, name, found.version)
    if version < versions.broken_below:
        said = f"{found.version} cannot run the simulator; expected {versions.ours}"
        return Finding(FAIL, name, said, install(facts))
    older_or_newer = "older" if version < versions.oldest else "newer"
    said = f"{found.version} is {older_or_newer} than any that was tried; expected {versions.ours}"
    return Finding(WARN, name, said, install(facts))


def broken(facts: Facts, name: str) -> Finding:
    """A package that is there and cannot be imported."""
    found = facts.libraries[name]
    said = f"{found.version or found.file} cannot be imported: {found.problem}"
    if not is_installed(found.file):
        return Finding(FAIL, name, said, f"{found.file} stands in the way of the package of that name: rename it")
    advice = again(facts, name)
    if "LD_LIBRARY_PATH" in facts.environment:
        advice = f"other libraries may come first: unset LD_LIBRARY_PATH; if that does not help, {advice}"
    return Finding(FAIL, name, said, advice)


def is_installed(file: str) -> bool:
    return any(part in ("site-packages", "dist-packages") for part in Path(file).parts)


def again(facts: Facts, name: str = "") -> str:
    """How to install a package, or all of them, over what is there."""
    if not facts.is_projects:
        return by_uv(facts)
    return "install again: uv sync " + (f"--reinstall-package {name.replace('_', '-')}" if name else "--reinstall")


def install(facts: Facts) -> str:
    return "install what the class uses: uv sync" if facts.is_projects else by_uv(facts)


def packages(facts: Facts) -> Iterator[Finding]:
    """A line each for torch, triton and numpy; one for all that are missing; one for each other that is broken."""
    missing = [name for name, found in facts.libraries.items() if is_missing(found)]
    there = {name: found for name, found in facts.libraries.items() if name not in missing and not follows(facts, name)}
    others = {name: found for name, found in there.items() if name not in VERSIONS}
    yield from (package(facts, name) for name in there if name in VERSIONS)
    if missing:
        yield Finding(FAIL, "packages", f"not installed: {', '.join(missing)}", install(facts))
    else:
        yield Finding(OK, "packages", ", ".join(name for name, found in others.items() if not found.problem))
    yield from (broken(facts, name) for name, found in others.items() if found.problem)


def simulator(facts: Facts) -> Iterator[Finding]:
    if facts.simulator == "":
        yield Finding(OK, "simulator", "a small kernel gives the right result")
    elif facts.simulator is not None:
        statuses = {package(facts, name).status for name in VERSIONS}
        if FAIL not in statuses:  # that says it all
            anew = f"{again(facts)}; if it stays, show this line to the staff"
            found = f"a small kernel does not run: {facts.simulator}"
            yield Finding(FAIL, "simulator", found, install(facts) if WARN in statuses else anew)


def numbers(version: str) -> tuple[int, ...]:
    """ "2.13.0+cu130" as (2, 13)."""
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:2])
