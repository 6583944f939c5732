"""Compile the kernels of a script or submission for GPUs that need not be present.

    python -m assignment.compiling PATH [args] [--target a100,h100,b200] [--ptx DIR]

The report says whether each kernel compiles and fits. PATH is a script, or a folder that holds
cs336_kernels/. Host code runs on CPU tensors; kernels are compiled, not run.
"""

import argparse
import contextlib
import functools
import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from assignment.compiling import cache, install
from assignment.compiling.targets import TARGETS, Target
from assignment.simulator.kept_triton import has_compiler

NEEDS_LINUX = "compiling needs Linux, for which Triton has its compiler; kernels run in the simulator here"
_EPILOG = """What is left belongs to the script, as does all that comes after --.

exit status: 0 if every kernel compiles and fits; 1 if not, or if host code raised something else than an
AssertionError, for want of results; 2 if PATH cannot be used. A GPU that host code asks for is the target here, its
tensors on the CPU. The code runs as your own: grade.py runs others' in a sandbox."""


def run(path: Path, args: list[str], target: list[Target], ptx: Path | None) -> int:
    """Compile what is at a path and print the report; returns the exit status."""
    problem = _problem(path) if has_compiler() else NEEDS_LINUX
    if problem is not None:
        print(f"{path}: {problem}", file=sys.stderr)
        return 2
    return _script(path, args, target, ptx) if path.is_file() else _submission(path, target, ptx)


def parsed(arguments: Sequence[str]) -> Callable[[], int]:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m assignment.compiling",
        description="Compile kernels for GPUs that need not be there: does each compile, and fit?",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    names = f"of {','.join(TARGETS)} (all)"
    parser.add_argument("--target", metavar="NAMES", type=_targets, default=list(TARGETS.values()), help=names)
    parser.add_argument("--ptx", metavar="DIR", type=Path, help="write PTX and SASS there, with the source beside them")
    parser.add_argument("path", metavar="PATH", type=Path, help="a script, or a folder with cs336_kernels/")
    own, rest = list(arguments), list[str]()
    if "--" in arguments:
        own, rest = own[: own.index("--")], own[own.index("--") + 1 :]
    options, others = parser.parse_known_args(own)
    args = [*others, *rest]
    if args and options.path.is_dir():
        parser.error(f"expected no more than the folder, got {' '.join(args)}")
    return functools.partial(run, args=args, **vars(options))


def _targets(text: str) -> list[Target]:
    names = text.split(",")
    if unknown := [name for name in names if name not in TARGETS]:
        raise argparse.ArgumentTypeError(f"expected some of {', '.join(TARGETS)}, got {unknown[0]!r}")
    return [TARGETS[name] for name in dict.fromkeys(names)]


def _problem(path: Path) -> str | None:
    """Return why the path is neither a script nor a submission; None if it may be one."""
    if not path.exists():
        return "no such script or folder"
    if path.is_dir():
        return None if (path / "cs336_kernels").is_dir() else "expected a script, or a folder that holds cs336_kernels/"
    return None if path.suffix == ".py" else "expected a Python script, or a folder that holds cs336_kernels/"


def _script(path: Path, args: list[str], targets: list[Target], ptx: Path | None) -> int:
    from assignment.compiling import compiled_script, launch_report  # loads PyTorch

    install()
    noted = compiled_script.run(str(path), args, targets)
    return launch_report.tell(noted, path.resolve().parent, ptx)


def _submission(path: Path, targets: list[Target], ptx: Path | None) -> int:
    """Print the report on a submission, from the cache if all fitted and no file changed."""
    folder = path.resolve()
    key = cache.key([[target.name for target in targets], _sources(folder)])
    text = cache.recall(key) if ptx is None else None
    status = 0
    if not isinstance(text, str):
        status, text = _reported(path, targets, ptx)
        if status == 0 and ptx is None:
            cache.remember(key, text)
    print(text, end="")
    return status


def _reported(path: Path, targets: list[Target], ptx: Path | None) -> tuple[int, str]:
    """Return the exit status, and the report."""
    from assignment.compiling import launch_report, workload_calls  # loads PyTorch

    install()
    try:
        package = workload_calls.load(path.resolve())
    except Exception as error:
        print(f"{path}: cs336_kernels cannot be imported: {type(error).__name__}: {error}", file=sys.stderr)
        return 2, ""
    noted = [
        workload_calls.noted(call, getattr(package, call.function, launch_report.missing), target)
        for call in workload_calls.of_submission()
        for target in targets
    ]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        status = launch_report.tell(noted, path.resolve(), ptx)
    return status, said.getvalue()


def _sources(folder: Path) -> list[list[str]]:
    package = folder / "cs336_kernels"
    return [[str(path.relative_to(folder)), path.read_text(errors="replace")] for path in sorted(package.rglob("*.py"))]


if __name__ == "__main__":
    sys.exit(parsed(sys.argv[1:])())
