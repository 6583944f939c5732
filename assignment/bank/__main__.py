"""Try the grader on submissions whose verdict is known: `python -m assignment.bank COMMAND ...`."""

import argparse
import functools
import importlib
import sys
from collections.abc import Callable

from assignment.course import CourseError

COMMANDS = {  # modules of run/, each with `arguments` and `main`
    "grade": "grade bugs, right variants and cheats; say what went wrong",
    "engines": "compare what engines say of the bugs in memory",
    "rules": "take each rule against cheats away, or have right code marked down; say who shows it",
    "hostile_operations": "look for operations of PyTorch that leave their tensors",
    "signals": "kill and stop the processes of a grade",
    "kills": "kill the grading of a class again and again",
    "load": "grade many submissions at once on few cores; compare verdicts",
    "peak_memory": "measure how much memory a grade takes",
    "gpu_memory": "measure how much memory of a GPU a grade takes",
    "waiting": "measure how long a student waits for words on a wrong kernel",
    "cpu_time": "compare the CPU time of a grade with another checkout's",
    "native": "compare verdicts with those where Triton's compiler is missing, as on a Mac",
    "kept": "grade a few of them, and compare with verdicts that are kept: on a Mac",
    "devices": "compare verdicts of the simulator and of a GPU",
    "races": "time the reference, and those that cheat the clock, on a GPU",
    "clusters": "measure how throughput grows with the nodes of a cluster",
    "made": "make a class to grade",
    "suites": "run other people's kernels and tests in the simulator and in Triton's interpreter",
}


def parsed(arguments: list[str]) -> Callable[[], int]:
    """Return a command with the values of its options; only the module that is asked for is imported."""
    parser = argparse.ArgumentParser(prog="python -m assignment.bank", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter)
        if name in arguments[:1]:
            module = importlib.import_module(f"assignment.bank.run.{name}")
            command.description = module.__doc__
            command.set_defaults(main=module.main)
            module.arguments(command)
    given = vars(parser.parse_args(arguments))
    del given["command"]
    return functools.partial(given.pop("main"), **given)


def main(arguments: list[str]) -> int:
    """Run a command; returns its exit status."""
    try:
        return parsed(arguments)()
    except CourseError as error:
        print(f"bank: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
