"""Run the simulator's checks of a file, whose functions check_* they are: see test_simulator.py.

python -m assignment.tests.constructs.checks bounds    # prints one JSON object: check → traceback, or null
"""

import importlib
import json
import sys
import traceback

from assignment.simulator import install


def main() -> None:
    """Print what became of each check."""
    install()
    import torch

    results: dict[str, str | None] = {}
    for name, check in list(vars(importlib.import_module(f"assignment.tests.constructs.checks.{sys.argv[1]}")).items()):
        if name.startswith("check_"):
            torch.manual_seed(0)
            try:
                check()
                results[name] = None
            except BaseException:
                results[name] = traceback.format_exc()
    sys.stdout.write("\n" + json.dumps(results))


if __name__ == "__main__":
    main()
