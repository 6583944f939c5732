"""The tables of a page of figures: `python bench_page.py FILE` prints what `grade.py --bench --csv FILE` wrote.

Cells are TFLOP/s of products, or TB/s of the bytes that must move; the last column is what a call costs on the host.
"""

import csv
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from assignment.timing.contestants import SUBMISSION, TITLES

NAMES = TITLES | {SUBMISSION: "reference", "hopper": "Gluon", "hopper_backward": "Gluon"}


def size_of(row: dict[str, str]) -> str:
    other = "" if row["dtype"] in ("bfloat16", "float8_e4m3fn") else f" {row['dtype']}"
    return f"{int(row['n']):,} × {int(row['d']):,}{row['switches'] and ' ' + row['switches']}{other}"


def cell(row: dict[str, str] | None) -> str:
    if row is None:
        return "–"
    tflops = float(row["tflops"])
    return f"{tflops:,.0f}" if tflops else f"{float(row['tb_per_s']):.2f}"


def table(function: str, rows: list[dict[str, str]]) -> str:
    """Return a function's table: sizes down, contestants across."""
    present = [name for name in NAMES if any(row["contestant"] == name for row in rows)]
    lines = [f"## {function}", "", f"| n × d | {' | '.join(NAMES[name] for name in present)} | host, µs |"]
    lines.append("|---" * (len(present) + 2) + "|")
    for size in dict.fromkeys(map(size_of, rows)):
        of = {row["contestant"]: row for row in rows if size_of(row) == size}
        host = f"{float(of[SUBMISSION]['host']):.0f}" if SUBMISSION in of else "–"
        lines.append(f"| {size} | {' | '.join(cell(of.get(name)) for name in present)} | {host} |")
    return "\n".join(lines)


def main(path: str) -> None:
    with Path(path).open(encoding="utf-8") as file:
        rows = [*csv.DictReader(file)]
    functions = dict.fromkeys(row["function"] for row in rows)
    print("\n\n".join(table(name, [row for row in rows if row["function"] == name]) for name in functions))


if __name__ == "__main__":
    main(sys.argv[1])
