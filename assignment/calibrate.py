"""How far honest kernels stay from the bounds: grade one submission on many seeds and print each check's worst margin.

`python -m assignment.calibrate [PATH] --seeds 30`. A margin is error over bound; a right kernel should stay below 0.5.
Exits with 1 when a point was lost or a margin is above --limit.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "assignment" / "reference"


def graded(path: Path, seed: int, device: str, only: list[str]) -> dict[str, Any]:
    """The JSON report of one grade in a process of its own; raises CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        names = ["--only", *only] if only else []
        command = [sys.executable, str(ROOT / "grade.py"), str(path), "--seed", str(seed), "--device", device, *names]
        subprocess.run([*command, "--json", str(file)], check=True, stdout=subprocess.DEVNULL)
        return json.loads(file.read_text())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", nargs="?", type=Path, default=REFERENCE)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--limit", type=float, default=0.5)
    options = parser.parse_args()
    worst: dict[str, tuple[float, int]] = {}
    lost: list[str] = []
    for seed in range(options.first, options.first + options.seeds):
        report = graded(options.path, seed, options.device, options.only)
        for check in (check for problem in report["problems"] for check in problem["checks"]):
            worst[check["name"]] = max(worst.get(check["name"], (0.0, 0)), (check.get("margin", 0.0), seed))
            if check["score"] < check["max_score"] and check["status"] != "not graded":
                lost.append(f"seed {seed}: {check['name']}: {check['status']}: {check['message']}")
        print(f"seed {seed}: {report['score']:g}/{report['gradable']:g} in {report['seconds']} s", flush=True)
    for name, (margin, seed) in worst.items():
        print(f"{margin:6.3f}  {name}  (seed {seed})")
    print(*lost, sep="\n")
    return 1 if lost or any(margin > options.limit for margin, _ in worst.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
