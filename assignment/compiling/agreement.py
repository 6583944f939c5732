"""Compare what is predicted without a GPU with what a GPU reports, for a submission's kernels.

    python -m assignment.compiling.agreement [PATH]

PATH is a folder that holds cs336_kernels/ (default: here). On a machine with an A100, an H100 or
H200, or a B200, every call of workload_calls.of_submission() is made twice, each time in a separate process:
on CPU tensors with launches compiled for that GPU, and on the GPU with Triton's own driver, which
runs them. Exit status: 0 if shared memory, registers and spills agree for every kernel, 1 if not, 2
if there is no such GPU or no such folder.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from assignment.compiling import build, install, workload_calls
from assignment.compiling.targets import TARGETS, Target
from assignment.simulator.triton_private import JITFunction

ROOT = Path(__file__).resolve().parents[2]
SIDES = ("compiled", "gpu")
COMPARED = ("shared", "registers", "spills")
Row = dict[str, Any]  # "call", "kernel", and what is compared


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m assignment.compiling.agreement", description="See its source.")
    parser.add_argument("path", nargs="?", type=Path, default=Path(), help="a folder that holds cs336_kernels/ (here)")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--target", choices=TARGETS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not (options.path / "cs336_kernels").is_dir():
        print(f"{options.path}: expected a folder that holds cs336_kernels/", file=sys.stderr)
        return 2
    if options.side:
        return print_side(options.side, options.path, TARGETS[options.target])
    target = of_gpu()
    if target is None:
        print(f"there is no GPU here of the kinds {', '.join(t.title for t in TARGETS.values())}", file=sys.stderr)
        return 2
    without, with_gpu = (side(name, options.path, target) for name in SIDES)
    if without is None or with_gpu is None:
        print("nothing is compared: every function must be written, and run", file=sys.stderr)
        return 2
    return tell(without, with_gpu)


def of_gpu() -> Target | None:
    """Return the target for this machine's GPU; code for an H200 is compiled as for an H100."""
    if not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability()
    return next((target for target in TARGETS.values() if target.capability == 10 * major + minor), None)


def print_side(name: str, path: Path, target: Target) -> int:
    """Print one side's rows as JSON in the last line; print a function's exception in words."""
    try:
        rows = list(compiled(path, target) if name == "compiled" else on_gpu(path))
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print(json.dumps(rows))
    return 0


def side(name: str, path: Path, target: Target) -> list[Row] | None:
    """Return the rows of one side, from a new process; None if it failed, and has said why."""
    command = [sys.executable, "-m", "assignment.compiling.agreement", str(path.resolve())]
    done = subprocess.run(
        [*command, "--side", name, "--target", target.name], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    return None if done.returncode else json.loads(done.stdout.splitlines()[-1])


def compiled(path: Path, target: Target) -> Iterator[Row]:
    """Yield what is predicted without a GPU."""
    install()
    package = workload_calls.load(path)
    noted = [
        workload_calls.noted(call, getattr(package, call.function), target) for call in workload_calls.of_submission()
    ]
    build.kernels([launch for one in noted for launch in one.launches])
    for one in noted:
        for launch in one.launches:
            (kernel,) = build.kernels([launch])
            yield {"call": one.call.title, "kernel": kernel.name, **{name: getattr(kernel, name) for name in COMPARED}}


def on_gpu(path: Path) -> Iterator[Row]:
    """Yield what Triton's driver reports of the kernels that it has loaded and run."""
    package, launched = workload_calls.load(path), []
    run = JITFunction.run

    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        kernel = run(self, *args, **kwargs)
        launched.append((self.__name__, kernel))
        return kernel

    JITFunction.run = watched
    for call in workload_calls.of_submission():
        launched.clear()
        getattr(package, call.function)(*(tensor.cuda() for tensor in call.tensors), **call.options)
        torch.cuda.synchronize()
        for name, kernel in launched:
            numbers = {"shared": kernel.metadata.shared, "registers": kernel.n_regs, "spills": kernel.n_spills}
            yield {"call": call.title, "kernel": name, **numbers}


def tell(without: Sequence[Row], with_gpu: Sequence[Row]) -> int:
    """Print a line for each kernel of each call; returns the exit status.

    Shared memory is in bytes.
    """
    print(f"{'kernel':<32}{'shared, GPU':>20}{'registers, GPU':>18}{'spills, GPU':>16}")
    differ = len(without) != len(with_gpu)
    last = ""
    for ours, theirs in zip(without, with_gpu, strict=False):
        if ours["call"] != last:
            print(last := ours["call"])
        cells = [f"{ours[name]}, {theirs[name]}" for name in COMPARED]
        is_same = ours == theirs
        print(f"  {ours['kernel']:<30}{cells[0]:>20}{cells[1]:>18}{cells[2]:>16}{'' if is_same else '  DIFFERENT'}")
        differ |= not is_same
    print(f"{len(without)} launches compiled, {len(with_gpu)} on the GPU: {'different' if differ else 'they agree'}")
    return int(differ)


if __name__ == "__main__":
    sys.exit(main())
