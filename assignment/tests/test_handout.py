"""The handout and the READMEs say what is true: their code runs, prints what they show, and their commands exist.

The fenced blocks of a document mean:

    ```python    runs, after the earlier python blocks of the same section, which share its names
    ```output    is exactly what the python block before it prints
    ```python script scale.py    is a script of its own, and
    ```report OPTIONS            what `python -m assignment.simulator OPTIONS` says of the last one, or the named one
    ```solved NAME=VALUE         what it says of the last one with the reference as cs336_kernels, in that environment
    ```python compile scale.py   is a script of its own, too,
    ```compiled OPTIONS          what `python -m assignment.compiling OPTIONS` says of the last one, and
    ```ptx scale_kernel.h100.1   lines of a listing that it writes, in their order; … stands for anything
    ```sh        commands, each of a form that test_commands_have_a_known_form knows
    ```text      tables, boxes, interfaces: read by people only; math, likewise
"""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import triton

from assignment.attacks import __main__ as attacks
from assignment.attacks import faults, gpu_memory, load, races
from assignment.compiling import __main__ as compiling
from assignment.grading import checks, cli
from assignment.simulator import __main__ as simulator
from assignment.tests.forked import python

ROOT = Path(__file__).parents[2]
HANDOUT = ROOT / "handout.md"
DOCUMENTS = [HANDOUT, ROOT / "README.md", ROOT / "AGENTS.md", ROOT / "assignment" / "README.md"]

SECTIONS = [  # the stubs and the grader's messages refer to these numbers
    "1. Setup",
    "2. Counting bytes: the roofline",
    "3. Triton in one worked example",
    "4. Weighted sum",
    "5. RMSNorm",
    "6. FlashAttention-2, forward",
    "7. FlashAttention-2, backward",
    "8. How it is graded",
    "9. Questions and answers",
    "10. Numerics",
    "11. Tails, strides and 64-bit offsets",
    "12. Reading the roofline and the cost report",
    "13. Making it fast",
    "14. Optional: the dQ race, and the price of two kernels",
    "15. Answers",
    "References",
]
LANGUAGES = {"python", "output", "sh", "text", "math", "json"}
WITH_ARGUMENTS = ["python script", "report", "solved", "python compile", "compiled", "ptx"]
COMPILED_BY = "3.7.1"  # the version of Triton that the handout shows
BEFORE_A_BLOCK = "\x1e"  # printed before each python block, to tell whose output is whose
HEADER = "import torch; from assignment.simulator import install; install(); torch.set_num_threads(1)"


@dataclass(frozen=True)
class Block:
    """A fenced block; `line` is the number of its first line of content, counted from 1."""

    language: str
    line: int
    content: str
    section: str
    arguments: tuple[str, ...] = ()


def language_of(info: str) -> tuple[str, tuple[str, ...]]:
    """What stands after the fence: a language, and the arguments of those that take some."""
    for language in WITH_ARGUMENTS:
        if info == language or info.startswith(f"{language} "):
            return language, tuple(info.removeprefix(language).split())
    return info, ()


def blocks(document: Path) -> list[Block]:
    found: list[Block] = []
    lines: list[str] = []
    section, language = "", None
    for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.startswith("```"):
            if language is not None:
                lines.append(line)
            elif line.startswith("## "):
                section = line.removeprefix("## ")
        elif language is None:
            language, lines = line.removeprefix("```"), []
        else:
            name, arguments = language_of(language)
            found.append(Block(name, number - len(lines), "\n".join(lines), section, arguments))
            language = None
    assert language is None, f"{document.name}: a block is never closed"
    return found


def module_of(section: list[Block]) -> str:
    """The python blocks as one module whose line numbers are the handout's, so that a traceback points there."""
    lines: list[str] = []
    for block in section:
        lines += [""] * (block.line - 2 - len(lines))
        lines += [f"print({BEFORE_A_BLOCK!r}, end='')", *block.content.splitlines()]
    return "\n".join(lines) + "\n"


def printed_by(section: list[Block], folder: Path) -> list[str]:
    """What each block of a section prints, when they run as one file in a process of its own."""
    source = folder / "handout.py"
    source.write_text(module_of(section), encoding="utf-8")
    program = f"{HEADER}; import runpy; runpy.run_path({str(source)!r}, run_name='handout')"
    done = python("-W", "error::RuntimeWarning", "-c", program, cwd=ROOT, timeout=60)
    assert done.returncode == 0, f"line numbers below are those of handout.md\n{done.stderr}"
    return done.stdout.split(BEFORE_A_BLOCK)[1:]


HANDOUT_BLOCKS = blocks(HANDOUT)
PYTHON_SECTIONS = sorted({block.section for block in HANDOUT_BLOCKS if block.language == "python"})


@pytest.mark.parametrize("section", PYTHON_SECTIONS)
def test_code_runs_and_prints_what_the_handout_shows(section, tmp_path):
    """Every python block runs as printed, and an output block is the output of the block before it"""
    in_section = [block for block in HANDOUT_BLOCKS if block.section == section]
    code = [block for block in in_section if block.language == "python"]
    shown = {}
    for before, block in zip([None, *in_section], in_section, strict=False):
        if block.language == "output":
            assert before, f"line {block.line}: output of which code?"
            assert before.language == "python", f"line {block.line}: output of which code?"
            shown[before.line] = block.content
    for block, printed in zip(code, printed_by(code, tmp_path), strict=True):
        assert printed.rstrip("\n") == shown.get(block.line, ""), f"handout.md, line {block.line}"


SCRIPTS = {
    block.arguments[0]: block for block in HANDOUT_BLOCKS if block.language in ("python script", "python compile")
}


def script_of(shown: Block) -> str:
    """The script that a report is about: the one that it names, else the last one above it."""
    named = [name for name in shown.arguments if name in SCRIPTS]
    return named[0] if named else [name for name, block in SCRIPTS.items() if block.line < shown.line][-1]


def shown_as(language: str) -> list:
    shown = [block for block in HANDOUT_BLOCKS if block.language == language]
    return [pytest.param(block, id=" ".join([script_of(block), *block.arguments])) for block in shown]


def said_of(program: str, shown: Block, folder: Path, *options: str, **environment: str) -> tuple[int, str]:
    """Exit status and output of a program of ours, called for a script of the handout in a folder of its own."""
    script = script_of(shown)
    (folder / script).write_text(SCRIPTS[script].content, encoding="utf-8")
    arguments = [argument for argument in (*options, *shown.arguments) if argument != script]
    command = [*arguments, script] if program == "assignment.simulator" else [script, *arguments]
    settings = {"PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": str(folder / "triton")} | environment
    done = python("-m", program, *command, cwd=folder, env=os.environ | settings, timeout=120, is_merged=True)
    return done.returncode, done.stdout


@pytest.mark.parametrize("report", shown_as("report"))
def test_the_simulator_says_what_the_handout_shows(report, tmp_path):
    """Each script gets the report that is printed below it: a bug that is planted in it, or its costs"""
    status, said = said_of("assignment.simulator", report, tmp_path)
    assert "\n".join(line.rstrip() for line in said.rstrip("\n").splitlines()) == report.content
    assert status == ("launched at" in report.content), "a finding, and nothing else, is a failure"


@pytest.mark.parametrize("shown", shown_as("solved"))
def test_a_solution_says_what_the_handout_shows(shown, tmp_path):
    """A script that calls cs336_kernels prints this for a right solution"""
    settings = dict(argument.split("=") for argument in shown.arguments)
    settings["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT / "assignment" / "reference", ROOT)))
    status, said = said_of("assignment.simulator", replace(shown, arguments=()), tmp_path, **settings)
    assert (status, without_noise(said.rstrip("\n"))) == (0, without_noise(shown.content))


def without_noise(said):
    """Differences that are rounding alone are others on other machines"""
    return re.sub(r"\b\de-0[678]\b", "1e-07", said)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """What is said of a script to be compiled, with the folder of its listings."""
    found: dict[str, tuple[int, str, Path]] = {}

    def of(report: Block) -> tuple[int, str, Path]:
        script = script_of(report)
        if script not in found:
            folder = tmp_path_factory.mktemp("compiled")
            found[script] = *said_of("assignment.compiling", report, folder, "--ptx", "listings"), folder / "listings"
        return found[script]

    return of


@pytest.mark.slow
@pytest.mark.parametrize("report", shown_as("compiled"))
def test_the_compiler_says_what_the_handout_shows(report, compiled):
    """The report on the launches; another version of Triton may allocate other registers"""
    status, said, _ = compiled(report)
    said = re.sub(r"\n\n\d+ files in listings\n$", "", said).rstrip("\n")
    if triton.__version__ == COMPILED_BY:
        assert said == report.content
    else:
        assert re.sub(r"[\d\s]+", " ", said) == re.sub(r"[\d\s]+", " ", report.content)
    assert status == ("Does not run on such a GPU" in report.content)


@pytest.mark.slow
@pytest.mark.skipif(triton.__version__ != COMPILED_BY, reason="another version of Triton numbers registers otherwise")
@pytest.mark.parametrize("page", shown_as("ptx"))
def test_the_page_of_ptx_is_written_by_the_compiler(page, compiled):
    (report,) = (b for b in HANDOUT_BLOCKS if b.language == "compiled" and script_of(b) == script_of(page))
    listing = compiled(report)[2] / f"{page.arguments[0]}.ptx"
    lines = iter(listing.read_text(encoding="utf-8").splitlines())
    for wanted in page.content.splitlines():
        pattern = re.compile(".*".join(re.escape(part) for part in wanted.split("…")))
        assert any(pattern.fullmatch(line) for line in lines), wanted


def test_sections_keep_their_numbers():
    """The stubs and the grader refer to sections by number"""
    assert re.findall(r"^## (.*)$", HANDOUT.read_text(encoding="utf-8"), re.MULTILINE) == SECTIONS


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_blocks_have_a_known_language(document):
    """A misspelt language would keep a block from being run, or checked, without a word"""
    assert {block.language for block in blocks(document)} <= LANGUAGES | set(WITH_ARGUMENTS)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_within_the_repository_lead_somewhere(document):
    """Relative links name files that exist, and #anchors headings of the same document"""
    text = re.sub(r"^```.*?^```|`[^`\n]+`", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    anchors = {anchor_of(heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if target.startswith("#"):
            assert target[1:] in anchors, target
        elif "://" not in target:
            assert (document.parent / target.split("#")[0]).exists(), target


def anchor_of(heading: str) -> str:
    """GitHub's: lower case, letters, digits, hyphens and underscores stay, a space becomes a hyphen."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


# --- commands -----------------------------------------------------------------------------------------------------

OPTIONS = {  # of assignment.release, by its verb
    "student": {"--to", "--branch"},
    "solution": {"--branch"},
}


def commands(document: Path) -> list[str]:
    lines = [line for block in blocks(document) if block.language == "sh" for line in block.content.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


COMMANDS = [
    pytest.param(command, id=f"{document.relative_to(ROOT)}: {command}")
    for document in DOCUMENTS
    for command in commands(document)
]


@pytest.fixture(scope="module")
def pytest_help():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_have_a_known_form(command, pytest_help):
    """Each command calls a program of this repository, or installs uv, with options that it has"""
    match shlex.split(command, comments=True):
        case ["pip", "install", "uv"] | ["apt", "install", "bubblewrap"]:
            pass
        case ["uv", "run", "grade.py", *arguments]:
            options = cli.parse_arguments(arguments)
            if options.only:
                checks.select(checks.declared(), options.only)
        case ["uv", "run", "pytest", *arguments]:
            for option in options_in(arguments):
                assert re.search(rf"^\s+(-\w, )?{option}\b", pytest_help, re.MULTILINE), option
        case ["uv", "run", "python", "-m", "assignment.release", verb, *arguments]:
            assert options_in(arguments) <= OPTIONS[verb]
        case ["uv", "run", "python", "-m", "assignment.attacks", *arguments]:
            attacks.parse_arguments(arguments)
        case ["uv", "run", "python", "-m", "assignment.attacks.faults", *arguments]:
            faults.parse_arguments(arguments)
        case ["uv", "run", "python", "-m", "assignment.attacks.load", *arguments]:
            load.parse_arguments(arguments)
        case ["uv", "run", "python", "-m", "assignment.attacks.gpu_memory", *arguments]:
            gpu_memory.parse_arguments(arguments)
        case ["uv", "run", "python", "-m", "assignment.attacks.races", *arguments]:
            races.parse_arguments(arguments)
        case ["uv", "run", "python", "-m", "assignment.simulator", *arguments]:
            simulator.parse_arguments(arguments)
        case ["uv", "run", "python", "-m", "assignment.compiling", *arguments]:
            compiling.parse_arguments(arguments)
        case ["uv", "run", "python", "-m", "assignment.compiling.agreement", path]:
            assert (ROOT / path).is_dir()
        case ["uv", "run", "python", "-m", "assignment.simulator.benchmark" | "assignment.attacks.memory", *verbs]:
            assert set(verbs) <= {"sanitize"}
        case ["uv", "run", "python", "-m", "assignment.attacks.sandbox_cost"]:
            pass
        case ["uv", "run", "python", file]:
            assert file.endswith(".py")
        case _:
            pytest.fail(f"no such form of command: {command}")


def options_in(arguments: list[str]) -> set[str]:
    return {argument for argument in arguments if argument.startswith("-")}
