"""Edit the machinery in a copy of the tree, and see who shows that it is another.

`python -m assignment.bank rules [NAME ...]`: each edit of rules.txt takes a rule about whose work a value is away, and
the cheats that it holds are run. A rule for which one does not gain holds nothing, and is to be deleted.

`python -m assignment.bank rules --accusations [NAME ...]`: each edit of accusations.txt has the machinery mark right
code down, as it did once or might do. A variant, by a check, or a test must show it, or it could come back unseen.

Both end with 1 where one does not. A table has for each edit "@ name | file | who, who" and lines that go (-) and
come (+); who is a cheat, "variant::check" or "test_file.py::test".
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from assignment.digest import ROOT

TABLES = {False: "rules.txt", True: "accusations.txt"}


@dataclass(frozen=True)
class MachineryEdit:
    """An edit of one file, and those who show it, each of whom must."""

    name: str
    file: str
    shown_by: tuple[str, ...]
    old: str
    new: str


def edits_of(table: str) -> list[MachineryEdit]:
    found = []
    text = (Path(__file__).parents[1] / table).read_text(encoding="utf-8")
    for header, *lines in (block.splitlines() for block in f"\n{text}".split("\n@ ")[1:]):
        name, file, who = header.split(" | ")
        old, new = ("\n".join(line[1:] for line in lines if line[:1] == sign) for sign in "-+")
        found.append(MachineryEdit(name, file, tuple(who.split(", ")), old, new))
    return found


def copied(folder: Path) -> Path:
    """Return a copy of the tracked files, changes included."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, names.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name, follow_symlinks=False)
    return folder


def shown(tree: Path, who: str) -> str:
    """Return what shows an edit in a tree: a cheat keeps points, a variant loses some, a test fails; "" if nothing."""
    name, _, check = who.partition("::")
    grade = ["assignment.bank", "grade", "--quick", "--jobs", "1", "--kept", str(tree / "kept.jsonl")]
    if name.startswith("test_"):
        command, told = ["pytest", "-p", "no:cacheprovider", "-q", f"assignment/tests/{name}", "-k", check], "FAILED "
    elif check:
        command, told = [*grade, f"*/{name}", "--checks", check, "--seeds", "1"], f"variants/{name}: "
    else:
        command, told = [*grade, f"cheats/{name}"], f"{name}: keeps "
    ran = subprocess.run([sys.executable, "-m", *command], cwd=tree, capture_output=True, text=True)
    (tree / "kept.jsonl").unlink(missing_ok=True)
    return "; ".join(line for line in ran.stdout.splitlines() if told in line)


def unseen(edit: MachineryEdit, tree: Path) -> list[str]:
    """Return what is wrong: each that does not show the edit."""
    path = tree / edit.file
    text = path.read_text(encoding="utf-8")
    if text.count(edit.old) != 1:
        return [f"{edit.file} has its edit {text.count(edit.old)} times, expected once: {edit.old.strip()[:60]!r}"]
    path.write_text(text.replace(edit.old, edit.new), encoding="utf-8")
    wrong = []
    for who in edit.shown_by:
        said = shown(tree, who)
        print(f"  with the edit {who}: {said[:150] or 'as without it'}", flush=True)
        if not said:
            wrong.append(f"{who} does not show it")
    path.write_text(text, encoding="utf-8")
    return wrong


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", help="parts of edits' names, or of those who show them")
    parser.add_argument("--accusations", action="store_true", help="those that mark right code down")


def main(names: list[str], accusations: bool) -> int:
    found = edits_of(TABLES[accusations])
    chosen = [edit for edit in found if not names or any(n in edit.name or n in str(edit.shown_by) for n in names)]
    n_wrong = 0
    with tempfile.TemporaryDirectory(prefix="rules-") as folder:
        tree = copied(Path(folder))
        for edit in chosen:
            print(f"{edit.name} ({edit.file})", flush=True)
            wrong = unseen(edit, tree)
            print(*(f"  {line}" for line in wrong), sep="\n", end="\n" if wrong else "")
            n_wrong += bool(wrong)
    print(f"{len(chosen) - n_wrong} of {len(chosen)} are shown")
    return 1 if n_wrong else 0
