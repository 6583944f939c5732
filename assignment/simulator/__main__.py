"""Run a script that uses Triton on the CPU, and report what its kernels do wrong.

    python -m assignment.simulator [--report] [--l2 KB] [--at-once N] [--html FILE.html] [--seed N] SCRIPT [args]

Out-of-bounds accesses, races, the use of unwritten memory, and outputs that PyTorch reads although
no kernel stored them are errors. Arguments after SCRIPT belong to the script.
"""

import argparse
import ast
import functools
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

from assignment.simulator import install, kept_triton

_EPILOG = """exit status: the script's own; 1 if it did something wrong; 2 if there is no such script.
A GPU that the script asks for is the CPU here: device="cuda", .cuda() and the like make CPU tensors."""


def run(path: str, args: list[str], report: bool, l2_kb: int | None, at_once: int, html: Path | None, seed: int) -> int:
    """Run a script and tell what it did; returns the exit status."""
    problem = _problem(Path(path))
    if problem is not None:
        print(f"{path}: {problem}", file=sys.stderr)
        return 2
    try:
        kept_triton.fetch_if_missing()
    except kept_triton.NotFetched as error:
        print(error, file=sys.stderr)
        return 2
    install()
    from assignment.simulator import control, script  # load Triton, which install() comes before
    from assignment.simulator.calls import Call  # likewise
    from assignment.simulator.launch_page import write  # likewise
    from assignment.simulator.model import encoded  # likewise
    from assignment.simulator.recording import Recording  # likewise

    control.let_stop()

    recording = Recording() if html else None
    is_told = report or bool(l2_kb)
    is_traced = is_told or bool(html)
    call = Call(seed=seed, is_traced=is_traced, keeps_accesses=bool(l2_kb), recording=recording)
    done = script.run(path, args, call)
    if is_told:
        from assignment.simulator import l2, show  # loads Rich

        if l2_kb:
            for launch in done.call.launches:
                l2.fetch(launch, l2_kb * 1000, at_once)
        show.report(done.call.launches, done.host, l2_kb, at_once)
    status = script.tell(path, done)
    block = encoded(path, recording) if recording and recording.launches else b""
    if html and (problem := write(html, path, block)) is not None:
        print(problem, file=sys.stderr)
        return status or 2
    return status


def parsed(arguments: list[str]) -> Callable[[], int]:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m assignment.simulator",
        description="Run a script that uses Triton in the simulator: no GPU needed, and its kernels are watched.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--report", action="store_true", help="print what each launch loaded, stored and computed")
    fetched = "and what an L2 cache of so many KB fetches from memory"
    parser.add_argument("--l2", dest="l2_kb", metavar="KB", type=_count, help=fetched)
    sharing = "programs that share the L2 at a time (132: an H100's)"
    parser.add_argument("--at-once", metavar="N", type=_count, default=132, help=sharing)
    parser.add_argument("--html", metavar="FILE.html", type=_page, help="draw what each program read and wrote")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="another order of the programs (0)")
    parser.add_argument("path", metavar="SCRIPT")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="what comes after SCRIPT belongs to the script")
    return functools.partial(run, **vars(parser.parse_args(arguments)))


def _page(text: str) -> Path:
    path = Path(text)
    if path.suffix.lower() != ".html" or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"expected FILE.html in a folder that exists, got {text}")
    return path


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, got {text}")
    return int(text)


def _problem(path: Path) -> str | None:
    """Return why the path is not a script; None if it may be one.

    A .py that does not compile is a script with a bug.
    """
    if path.is_dir():
        return "expected a Python script, got a directory"
    try:
        source = importlib.util.decode_source(path.read_bytes())
        if "\0" in source:
            return "expected a Python script, got a binary file"
        if path.suffix != ".py":
            ast.parse(source)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        return "expected a Python script, got a file that is no text in UTF-8"
    except SyntaxError as error:
        return f"expected a Python script, got a file that is not Python: {error.msg}"
    return None


if __name__ == "__main__":
    sys.exit(parsed(sys.argv[1:])())
