"""Run every construct and write inputs, outputs and tolerances to a safetensors file."""

import argparse
import sys
from pathlib import Path


def main() -> int:
    arguments = _parse()
    if arguments.device == "cpu":
        from assignment.simulator import install

        install()
    from assignment.tests.constructs.record import record

    failures = record(arguments.device, arguments.out, arguments.inputs, arguments.only)
    for name, error in failures.items():
        print(f"{name}: {error}")
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m assignment.tests.constructs", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--out", type=Path, required=True, help="the safetensors file to write")
    parser.add_argument(
        "--inputs",
        type=Path,
        help="a file of an earlier run, whose inputs are used again",
    )
    parser.add_argument("--only", default="", help="run the constructs whose name contains this")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
