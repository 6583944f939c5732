"""Every citation of the handout, wherever it is, names a section that exists; none is a number."""

import re
import subprocess
from pathlib import Path

import pytest

from assignment.commands import handout
from assignment.judge import door
from assignment.tests.specification import explanations
from assignment.verdict import checks, where
from assignment.verdict.diagnosis import matching

ROOT = Path(__file__).resolve().parents[2]
TEXT = {".md", ".py", ".toml"}
MADE_UP = {
    "handout/x.md",
    "handout/sum.md",
    "handout/sum.md#a-total",
    "handout/old.md",
    "handout/new.md",
}  # in tests of the machinery
CITATION = re.compile(r"\bhandout(?:/\w+)?\.md(?:#[\w-]+)?")  # handout/rmsnorm.md#algorithm
NUMBERED = re.compile(r"^.*\bsections? \d.*$", re.IGNORECASE | re.MULTILINE)
OF_A_PAPER = re.compile(r"\(\d{4}\)|\b(19|20)\d\d\b")


def files() -> list[Path]:
    """Return what git tracks, or would, but for this file."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [
        ROOT / name
        for name in listed
        if Path(name).suffix in TEXT and name != f"assignment/tests/{Path(__file__).name}"
    ]


def wrong(text: str) -> list[str]:
    """Return the citations in a text that name no section of the handout, and lines that cite a number."""
    cited = [cited for cited in CITATION.findall(text) if cited not in MADE_UP]
    numbered = [line[0] for line in NUMBERED.finditer(text) if not OF_A_PAPER.search(line[0])]
    return [citation for citation in cited if not handout.section(citation)] + numbered


def test_citations_resolve():
    found = {path: wrong(path.read_text(encoding="utf-8")) for path in files() if path.exists()}
    assert len(found) > 100
    assert not {str(path.relative_to(ROOT)): lines for path, lines in found.items() if lines}


def test_what_is_put_together_when_it_runs_resolves_too():
    """Hints, messages, and what a check says to open"""
    made = [
        *map(str, explanations()),
        *(models.section for models in matching.MODELS.values()),
        door.READ,
        *door.NOT_THE_WORK,
    ]
    for text in [*made, *(str(where.place(check)) for check in checks.declared())]:
        assert CITATION.search(text), text
        assert not wrong(text), text


@pytest.mark.parametrize(
    "text",
    ["(handout, section 6)", "handout section 6.1", "See sections 4 and 5.", "handout/rmsnorm.md#x", "handout/y.md"],
)
def test_a_number_or_a_heading_that_is_gone_is_found(text):
    assert wrong(text)


def test_sections_of_papers_are_not_ours():
    assert not wrong("Source: Dao 2023, section 2.3.2")
