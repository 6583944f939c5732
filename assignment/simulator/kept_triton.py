"""Triton for systems that it has no build for: the Python files of its Linux wheel, kept in the environment.

The first run fetches the wheel by uv and keeps what is Python of it in a folder of the environment, which a
.pth file has every process of that Python find; what it lacks, libtriton.py stands in for. No later run needs
the network, and `uv sync` leaves both alone: they belong to no package.
"""

import importlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.requirements import Requirement

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
# of the wheel for Python 3.12 and later on aarch64, whose Python files are those of all others
HASHES = {"3.9.0": "5542f4328472fd827dbb1ec43873364c2894682cc3f5d1c74a643762900e243e"}
WHEELS_PYTHON, WHEELS_PLATFORM = "3.12", "aarch64-unknown-linux-gnu"
FOLDER, PATH_FILE = "triton-kept", "triton-kept.pth"
LIBRARY = "libtriton"
STANDS_IN = "from assignment.simulator import libtriton\n\nlibtriton.stand_in()\n"
FETCHES = "Triton has no build for this system: fetching its Linux wheel once, 263 MB, of which 2 MB are kept …"
ONCE = "Triton's Linux wheel could not be fetched, of which 2 MB are needed once"
MISSING = ("Triton's files are not here yet", "type uv run grade.py once, which fetches them (first: pip install uv)")
AGAIN = "connect to the network, and give the same command again; later runs need none"
CAUSES = {  # and cures, by what uv says of them
    "hash mismatch": ("it is not the file that was expected", "try again; if it stays, show this line to the staff"),
    "no space left": ("the disk is full", "make 1 GB of room, and give the same command again"),
    "network was disabled": ("uv may not use the network", AGAIN),
    "failed to fetch": ("uv does not reach it", AGAIN),
    "failed to download": ("the download broke off", AGAIN),
}


class NotFetched(Exception):
    """Triton's files are missing and cannot be fetched."""

    def __init__(self, why: str, todo: str) -> None:
        super().__init__(f"{why}; {todo}")
        self.why, self.todo = why, todo


def dependencies() -> list[str]:
    """Return what pyproject.toml asks for."""
    return tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["dependencies"]


def requirements() -> "list[Requirement]":
    """Return the same, read."""
    from packaging.requirements import Requirement  # may be missing, as other packages may

    return [*map(Requirement, dependencies())]


def pinned(requirement: "Requirement") -> str:
    """Return the one version that is asked for, or ""."""
    return next((one.version for one in requirement.specifier if one.operator == "=="), "")


def origin(name: str) -> Path | None:
    """Return the file that `import name` would load; None if there is none."""
    spec = PathFinder.find_spec(name)
    return Path(spec.origin) if spec and spec.origin else None


def has_compiler() -> bool:
    """Return whether Triton's compiler is installed, without loading Triton."""
    found = origin("triton")
    return found is not None and not found.with_name("_C").joinpath(f"{LIBRARY}.py").exists()


def fetch_if_missing() -> None:
    """Have Triton's files found by this process and later ones, on a system that uv installs none on.

    Raises NotFetched.
    """
    prefix, found = Path(sys.prefix), origin("triton")
    if found and prefix / FOLDER not in found.parents:  # as on Linux
        return
    wanted = next(one for one in requirements() if one.name == "triton")
    if wanted.marker is None or wanted.marker.evaluate():
        return
    home = prefix / FOLDER / pinned(wanted)
    if not home.is_dir():
        if not (uv := os.environ.get("UV")):
            raise NotFetched(*MISSING)
        print(FETCHES, file=sys.stderr, flush=True)
        fetch(prefix, pinned(wanted), uv)
    if str(home) not in sys.path:
        find(prefix, home)
        sys.path[:] = [*(entry for entry in sys.path if prefix / FOLDER not in Path(entry).parents), str(home)]
        importlib.invalidate_caches()


def fetch(prefix: Path, version: str, uv: str) -> None:
    """Fetch the wheel and keep what is Python of it in an environment; where that fails, keep nothing of it.

    Raises NotFetched.
    """
    if version not in HASHES:
        raise NotFetched(f"{ONCE}: no hash of {version} is known here", "update your copy, or ask the staff")
    try:
        (prefix / FOLDER).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="fetching-", dir=prefix / FOLDER) as scratch:
            whole = Path(scratch, "whole")
            _install(uv, version, whole)
            keep(whole, Path(scratch, "kept"))
            _move(Path(scratch, "kept"), prefix / FOLDER / version)
    except OSError as error:
        raise _failed(str(error)) from error


def _install(uv: str, version: str, to: Path) -> None:
    """Have uv unpack the wheel into a folder, with its own scratch space beside that."""
    wanted = to.with_name("wanted.txt")
    wanted.write_text(f"triton=={version} --hash=sha256:{HASHES[version]}\n")
    options = ["--no-cache", "--require-hashes", "--no-deps"]
    where = ["--target", str(to), "--python", sys.executable, "--python-version", WHEELS_PYTHON]
    command = [uv, "pip", "install", *options, *where, "--python-platform", WHEELS_PLATFORM, "-r", str(wanted)]
    environment = {**os.environ, "TMPDIR": str(to.parent)}  # to link what it unpacks, not copy it
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise _failed(done.stderr)


def _failed(said: str) -> NotFetched:
    """Return in one line what a program, or the system, has said of a failure."""
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["uv said nothing"]
    first = next((line for line in lines if line.startswith("error: ")), lines[-1]).removeprefix("error: ")
    known = (cause for words, cause in CAUSES.items() if words in said.lower())
    why, todo = next(known, (first, "if it stays, show this line to the staff"))
    return NotFetched(f"{ONCE}: {why}", todo)


def keep(packages: Path, to: Path) -> None:
    """Copy Triton's Python files and what is known of the package, out of a folder of packages."""
    names = [path for path in packages.glob("triton*") if path.name == "triton" or path.suffix == ".dist-info"]
    for file in (file for name in names for file in name.rglob("*") if file.is_file()):
        place = file.relative_to(packages)
        if place.parts[0] != "triton" or file.suffix == ".py":
            (to / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, to / place)
    (to / "triton" / "_C").mkdir(exist_ok=True)
    (to / "triton" / "_C" / f"{LIBRARY}.py").write_text(STANDS_IN)


def _move(folder: Path, to: Path) -> None:
    """Rename a folder that is complete, unless another run has meanwhile made the same."""
    try:
        folder.rename(to)
    except OSError:
        if not to.is_dir():
            raise


def find(prefix: Path, folder: Path) -> None:
    """Have each process of an environment find what is in a folder, workers with `python -I` too."""
    file = packages_of(prefix) / PATH_FILE
    unfinished = file.with_suffix(f".{os.getpid()}")
    unfinished.write_text(f"{folder}\n")
    unfinished.replace(file)


def packages_of(prefix: Path) -> Path:
    """Return where an environment's packages lie."""
    return Path(sysconfig.get_path("purelib", vars={"base": str(prefix), "platbase": str(prefix)}))
