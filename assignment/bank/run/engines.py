"""Who sees the planted bugs that misuse memory: the simulator, right values, Triton's interpreter, compute-sanitizer.

python -m assignment.bank engines                          run them all on the CPU; write a section of results.md
python -m assignment.bank engines page                     the table and the section, from what is recorded
python -m assignment.bank engines sanitize [NAME ...]      on a GPU, under compute-sanitizer
python -m assignment.bank engines run NAME --engine NAME   one of them, once

What is recorded lies in .bank/, which is not committed.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

from assignment.bank import bugs
from assignment.bank.corpus import entries, graded
from assignment.bank.run import one_bug, results_page
from assignment.bank.run.results_page import listed
from assignment.digest import ROOT

Outcome = dict[str, int | str]  # of a bug: what each engine or tool says of it


SEEN, SANITIZED = ROOT / ".bank" / "memory.json", ROOT / ".bank" / "sanitizer.json"
TITLE = "Misused memory"  # section of results.md
ON_CPU = ("simulator", "guarded", "interpreter")
TIMEOUT_S = 150
ALSO = {"race": "racecheck", "unwritten memory": "initcheck", "never stored": "initcheck"}  # beside memcheck

Target = tuple[dict[str, bytes], str]  # files, check


def targets() -> dict[str, Target]:
    """Return every bug with a line, and the base itself on the same checks: nobody may see anything there."""
    planted = [entry for entry in entries() if entry.misuses_memory and entry.problem in graded()]
    wrong = {entry.name.removeprefix("bugs/"): (entry.submission.files, entry.caught_by) for entry in planted}
    return wrong | {f"base/{entry.caught_by}": (bugs.base(), entry.caught_by) for entry in planted}


def arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers()
    page = commands.add_parser("page", help="the table and the section of results.md, from what is recorded")
    page.set_defaults(main=write_page)
    run = commands.add_parser("run", help="one submission by one engine; prints a line of JSON")
    run.add_argument("name")
    run.add_argument("--engine", choices=one_bug.ENGINES, required=True)
    run.set_defaults(main=run_one)
    sanitize = commands.add_parser("sanitize", help="run them under compute-sanitizer; skips what is recorded")
    sanitize.add_argument("names", nargs="*", help="parts of names")
    sanitize.add_argument("--jobs", type=int, default=8, help="programs on the GPU at once")
    sanitize.add_argument("--to", type=Path, default=SANITIZED, metavar="FILE")
    sanitize.set_defaults(main=run_sanitizer)


def run_one(name: str, engine: str) -> int:
    print("\n" + json.dumps(asdict(one_bug.run(*targets()[name], engine))), flush=True)
    return 0


def run_sanitizer(names: list[str], jobs: int, to: Path) -> int:
    wanted = [name for name in targets() if not names or any(part in name for part in names)]
    record(to, wanted, under_sanitizer, jobs)
    return 0


def main() -> int:
    SEEN.unlink(missing_ok=True)
    record(SEEN, list(targets()), on_cpu, 1)
    return write_page()


def write_page() -> int:
    print(table(read(SEEN), read(SANITIZED)))
    results_page.write(TITLE, "python -m assignment.bank engines", section(read(SEEN), read(SANITIZED)))
    return 0


def read(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def record(file: Path, names: Iterable[str], look: Callable[[str], Outcome], at_once: int) -> None:
    """Add to the file what `look` says of each name that it does not hold yet."""
    known = read(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(at_once) as threads:
        pending = {threads.submit(look, name): name for name in names if name not in known}
        for done in as_completed(pending):
            name = pending[done]
            known[name] = done.result()
            print(name, known[name], flush=True)
            text = json.dumps({name: known[name] for name in sorted(known)}, indent=1, ensure_ascii=False)
            file.write_text(text + "\n", encoding="utf-8")


def on_cpu(name: str) -> Outcome:
    """Return the result by each engine of the CPU, and what the simulator says: the kind of fault and its line."""
    found: Outcome = {}
    for engine in ON_CPU:
        outcome, _ = run_apart([], name, engine)
        found[engine] = outcome["result"]
        if engine == "simulator":
            found |= {"kind": outcome.get("kind", ""), "at": outcome.get("at", "")}
    return found


def under_sanitizer(name: str) -> Outcome:
    """Return how many errors each tool that may see this kind of bug reports, and whether the values were right."""
    kind = read(SEEN).get(name, {}).get("kind", "")
    tools = ("memcheck", *([ALSO[kind]] if kind in ALSO else []))
    if name.startswith("base/"):
        tools = ("memcheck", "initcheck", "racecheck")
    found: Outcome = {}
    for tool in tools:
        outcome, output = run_apart(["compute-sanitizer", "--tool", tool], name, "cuda")
        summary = re.search(r"(?:ERROR SUMMARY|RACECHECK SUMMARY): (\d+) (?:error|hazard)", output)
        found[tool] = int(summary[1]) if summary else outcome["result"]
        if tool == "memcheck":
            first = re.search(r"^=+ (Invalid .*)$", output, re.MULTILINE)
            found |= {"values": outcome["result"], "first": first[1] if first else ""}
    return found


def run_apart(under: list[str], name: str, engine: str) -> tuple[dict[str, str], str]:
    """Return the outcome of `run` in a process of its own, which may die, and all that it printed."""
    command = [*under, sys.executable, "-m", "assignment.bank", "engines", "run", name, "--engine", engine]
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # so that the watched program goes with the one that watches
    )
    try:
        output, _ = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return {"result": "timeout", "message": ""}, ""
    if process.returncode < 0:
        return {"result": f"crash, {signal.Signals(-process.returncode).name}", "message": ""}, output
    lines = [line for line in output.splitlines() if line.startswith('{"result": ')]
    return json.loads(lines[-1]) if lines else {"result": one_bug.ERROR, "message": output}, output


def section(seen: dict[str, dict[str, str]], sanitized: dict[str, Outcome]) -> str:
    """Return by kind of bug how many are seen by whom, and what is not as it should be."""
    wrong = {name: entry for name, entry in seen.items() if not name.startswith("base/")}
    kinds = [*sorted({entry["kind"] for entry in wrong.values()}), ""]
    rows = [_totals(kind, {n: e for n, e in wrong.items() if kind in e["kind"]}, sanitized) for kind in kinds]
    missed = [name for name, entry in wrong.items() if entry["simulator"] != one_bug.FAULT]
    alarms = [name for name in seen.keys() - wrong.keys() if is_alarm(seen[name], sanitized.get(name, {}))]
    return "\n".join([EXPLAINED, *rows, *listed("Missed by the simulator", missed), *listed("False alarms", alarms)])


EXPLAINED = """Each planted bug, and the base that it is an edit of, ran on the same few cases of one check.

- *Simulator*: it reports a fault. A result that was never stored is a note beside wrong values.
- *Values alone*: the same cases in Triton's interpreter, inputs between guards of NaN, fresh memory full of NaN.
- *Plain interpreter*: the same without guards and NaN. Both run programs in order, where a race may look right, and
  what memory holds beyond a tensor is luck: this was one run. Crashes count as seen.
- *compute-sanitizer*: errors on an H200 with CUDA's own allocator. Its racecheck knows shared memory only, its
  initcheck every load, used or not. *Wrong on an H200*: values, or an error.

| kind | bugs | simulator | values alone | plain interpreter | compute-sanitizer | wrong on an H200 |
|---|---|---|---|---|---|---|"""


def _totals(kind: str, wrong: dict[str, dict[str, str]], sanitized: dict[str, Outcome]) -> str:
    counts = [sum(entry["simulator"] == one_bug.FAULT for entry in wrong.values())]
    counts += [sum(entry[engine] != one_bug.RIGHT for entry in wrong.values()) for engine in ON_CPU[1:]]
    on_gpu = [sanitized[name] for name in wrong if name in sanitized]
    gpu = [sum(map(alarmed, on_gpu)), sum(entry["values"] != one_bug.RIGHT for entry in on_gpu)]
    cells = [kind or "all", len(wrong), *counts, *(gpu if on_gpu else ["–", "–"])]
    return f"| {' | '.join(map(str, cells))} |"


def is_alarm(entry: dict[str, str], sanitized: Outcome) -> bool:
    """Return whether anything is said of a base, which is right."""
    return any(entry[engine] != one_bug.RIGHT for engine in ON_CPU) or alarmed(sanitized)


def table(seen: dict[str, dict[str, str]], sanitized: dict[str, Outcome]) -> str:
    """Return a table in Markdown: each bug, then each base, and what everybody says of it."""
    names = sorted(seen, key=lambda name: (name.startswith("base/"), name))
    rows = [cells(name, seen[name], sanitized.get(name)) for name in names]
    heads = "bug | kind | simulator | values alone | plain interpreter | compute-sanitizer | values on an H200"
    return f"| {heads} |\n|---|---|---|---|---|---|---|\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def cells(name: str, entry: dict[str, str], sanitized: Outcome | None) -> list[str]:
    simulator = f"yes, {entry['at']}".rstrip(", ") if entry["simulator"] == one_bug.FAULT else entry["simulator"]
    row = [name, entry["kind"], simulator, entry["guarded"], entry["interpreter"]]
    if sanitized is None:
        return [*row, "–", "–"]
    tools = [f"{tool}: {sanitized[tool]}" for tool in ("memcheck", "initcheck", "racecheck") if tool in sanitized]
    return [*row, ", ".join(tools), str(sanitized["values"])]


def alarmed(sanitized: Outcome) -> bool:
    return any(isinstance(sanitized.get(tool), int) and sanitized[tool] for tool in ("memcheck", *ALSO.values()))
