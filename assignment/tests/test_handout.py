"""The handout and the READMEs say what is true: their code runs, prints what they show, and their commands exist.

pages.py says what the blocks of a document mean; test_page_commands.py runs their commands.
"""

import importlib.util
import inspect
import os
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import triton

from assignment import retire
from assignment.bank import __main__ as bank
from assignment.classroom import __main__ as classroom
from assignment.commands import cli, handout
from assignment.commands.handout import COMMENT
from assignment.compiling import __main__ as compiling
from assignment.handout import __main__ as pages
from assignment.new import __main__ as new
from assignment.simulator import __main__ as simulator
from assignment.tests import upgrade
from assignment.tests.forked import python
from assignment.tests.pages import (
    DOCUMENTS,
    HANDOUT,
    HANDOUT_BLOCKS,
    LANGUAGES,
    ROOT,
    SCRIPTS,
    WITH_ARGUMENTS,
    Block,
    blocks,
    commands,
    script_of,
)
from assignment.verdict import checks
from tests import operators

PRACTICE = [ROOT / "handout" / f"{one.name}.md" for one in operators.operators() if one.is_apart]  # short ones
MAX_WORDS = {"the path": 2_500, "until the first kernel is graded": 1_000, "in all": 20_000, "a practice chapter": 900}

COMPILED_BY = "3.9.0"  # the version of Triton that the handout shows
BEFORE_A_BLOCK = "\x1e"  # printed before each python block, to tell whose output is whose
HEADER = "import torch; from assignment.simulator import install; install(); torch.set_num_threads(1)"


def module_of(blocks: list[Block]) -> str:
    """Return the python blocks as one module, with the document's line numbers, so that a traceback points there."""
    lines: list[str] = []
    for block in blocks:
        lines += [""] * (block.line - 2 - len(lines))
        lines += [f"print({BEFORE_A_BLOCK!r}, end='')", *block.content.splitlines()]
    return "\n".join(lines) + "\n"


def printed_by(code: list[Block], folder: Path) -> list[str]:
    """Return what each block of a document prints, when they run as one file in a process of its own."""
    source = folder / "handout.py"
    source.write_text(module_of(code), encoding="utf-8")
    program = f"{HEADER}; import runpy; runpy.run_path({str(source)!r}, run_name='handout')"
    done = python("-W", "error::RuntimeWarning", "-c", program, cwd=ROOT, timeout=60)
    assert done.returncode == 0, f"line numbers below are those of {code[0].document.name}\n{done.stderr}"
    return done.stdout.split(BEFORE_A_BLOCK)[1:]


WITH_PYTHON = list(dict.fromkeys(block.document for block in HANDOUT_BLOCKS if block.language == "python"))


@pytest.mark.parametrize("document", WITH_PYTHON, ids=lambda path: path.name)
def test_code_runs_and_prints_what_the_handout_shows(document, tmp_path):
    """Every python block runs as printed, and an output block is the output of the block before it"""
    inside = [block for block in HANDOUT_BLOCKS if block.document == document]
    code = [block for block in inside if block.language == "python"]
    shown = {}
    for before, block in zip([None, *inside], inside, strict=False):
        if block.language == "output":
            assert before, f"line {block.line}: output of which code?"
            assert before.language == "python", f"line {block.line}: output of which code?"
            shown[before.line] = block.content
    for block, printed in zip(code, printed_by(code, tmp_path), strict=True):
        assert printed.rstrip("\n") == shown.get(block.line, ""), f"{document.name}, line {block.line}"


def test_the_first_kernel_of_the_path_is_right(tmp_path):
    (first,) = (block for block in blocks(ROOT / "handout.md") if block.language == "python")
    checked = "x, y = torch.randn(2, 3, 1000)\nassert torch.equal(vector_add(x, y), x + y)"
    printed_by([first, replace(first, line=first.line + 100, content=checked)], tmp_path)


def test_the_path_is_short():
    """As wc -w counts, in a release, where comments have gone"""
    texts = {page: COMMENT.sub("", page.read_text(encoding="utf-8")) for page in HANDOUT}
    words, path = {page: len(text.split()) for page, text in texts.items()}, texts[ROOT / "handout.md"]
    found = {
        "the path": words[ROOT / "handout.md"],
        "until the first kernel is graded": len(path.partition("grade.py --only vector_add")[0].split()),
        "in all": sum(n for page, n in words.items() if page not in PRACTICE),
        "a practice chapter": max(words[page] for page in PRACTICE),
    }
    assert {what: n for what, n in found.items() if n > MAX_WORDS[what]} == {}


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


@pytest.mark.slow
@pytest.mark.parametrize("report", shown_as("report"))
def test_the_simulator_says_what_the_handout_shows(report, tmp_path):
    """Each script gets the report that is printed below it: a bug that is planted in it, or its costs"""
    status, said = said_of("assignment.simulator", report, tmp_path)
    assert is_shown(said, report.content), said
    assert status == ("launched at" in report.content), "a finding, and nothing else, is a failure"


def is_shown(said: str, content: str) -> bool:
    """Whether a block shows an output, a line of … standing for any number of lines."""
    parts = [re.escape(part.strip("\n")) for part in re.split(r"^…$", content, flags=re.MULTILINE)]
    pattern = r"(?:.*\n)?".join(f"{part}\n" if part else "" for part in parts)
    return bool(re.fullmatch(pattern, re.sub(r"[ \t]+$", "", said.rstrip("\n"), flags=re.MULTILINE) + "\n", re.DOTALL))


@pytest.mark.parametrize(
    ("content", "fits"),
    [("a\nb\nc", True), ("a\nc", False), ("a\n…\nc", True), ("…\nc", True), ("a\n…", True), ("…\nb", False)],
)
def test_an_ellipsis_stands_for_lines(content, fits):
    assert is_shown("a  \nb\nc\n", content) == fits


@pytest.mark.slow
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
    found: dict[tuple[str, ...], tuple[int, str, Path]] = {}

    def of(report: Block) -> tuple[int, str, Path]:
        asked = (script_of(report), *report.arguments)
        if asked not in found:
            folder = tmp_path_factory.mktemp("compiled")
            found[asked] = *said_of("assignment.compiling", report, folder, "--ptx", "listings"), folder / "listings"
        return found[asked]

    return of


@pytest.mark.slow
@pytest.mark.parametrize("report", shown_as("compiled"))
def test_the_compiler_says_what_the_handout_shows(report, compiled):
    """The report on the launches; another version of Triton may allocate other registers"""
    status, said, _ = compiled(report)
    said = re.sub(r"\n\n\d+ files in listings\n$", "", said)
    content = report.content
    if triton.__version__ != COMPILED_BY:
        said, content = (re.sub(r"\d+ *", "", text) for text in (said, content))
    assert is_shown(said, content), said
    assert status == ("Does not run on such a GPU" in said)


@pytest.mark.slow
@pytest.mark.skipif(triton.__version__ != COMPILED_BY, reason="another version of Triton numbers registers otherwise")
@pytest.mark.parametrize("page", shown_as("ptx"))
def test_the_page_of_ptx_is_written_by_the_compiler(page, compiled):
    report = next(b for b in HANDOUT_BLOCKS if b.language == "compiled" and b.document == page.document)
    listing = compiled(report)[2] / f"{page.arguments[0]}.ptx"
    lines = iter(listing.read_text(encoding="utf-8").splitlines())
    for wanted in page.content.splitlines():
        pattern = re.compile(".*".join(re.escape(part) for part in wanted.split("…")))
        assert any(pattern.fullmatch(line) for line in lines), wanted


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_blocks_have_a_known_language(document):
    """A misspelt language would keep a block from being run, or checked, without a word"""
    assert {block.language for block in blocks(document)} <= LANGUAGES | set(WITH_ARGUMENTS)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_within_the_repository_lead_somewhere(document):
    """Relative links name files that exist, and #anchors headings in them"""
    text = re.sub(r"^```.*?^```|`[^`\n]+`", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)]+)\)", text):
        file, _, anchor = target.partition("#")
        path = document.parent / file if file else document
        assert "://" in target or path.exists(), target
        assert "://" in target or not anchor or handout.section(f"{path.name}#{anchor}", path.parent), target


# --- commands -----------------------------------------------------------------------------------------------------

OPTIONS = {  # of assignment.release, by its verb
    "stubs": {"--check"},
    "student": {"--to", "--branch", "--grader", "--check"},
    "solution": {"--branch"},
}


COMMANDS = [
    pytest.param(command, id=f"{document.relative_to(ROOT)}: {command}")
    for document in DOCUMENTS
    for command in commands(document)
]


@pytest.fixture(scope="module")
def pytest_help():
    done = python("-m", "pytest", "--help", cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def takes(command, *given):
    """Hold that the function of a command has a parameter for each option"""
    inspect.signature(command.func).bind(*given, **command.keywords)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_have_a_known_form(command, pytest_help):
    """Each command calls a program of this repository, or installs uv, with options that it has"""
    match shlex.split(command, comments=True):
        case ["pip", "install", "uv"] | ["apt", "install", "bubblewrap"] | ["mkdir", *_] | ["ray", "start", *_]:
            pass
        case ["git", "fetch" | "restore" | "checkout" | "commit", *_]:  # which test_release.py runs
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
        case ["uv", "run", "python", "-m", "assignment.new", *arguments]:
            new.parse_arguments(arguments)
        case ["uv", "run", "python", "-m", "assignment.retire", *arguments]:
            retire.parse_arguments(arguments)
        case ["uv", "run", "python", "-m", "assignment.tests.upgrade", *arguments]:
            upgrade.parse_arguments(arguments)
        case ["uv", "run", "python", "-m", "assignment.handout", *arguments]:
            pages.folder_in(arguments)
        case ["uv", "run", "python", "-m", "assignment.simulator", *arguments]:
            takes(simulator.parsed(arguments))
        case ["uv", "run", "python", "-m", "assignment.compiling", *arguments]:
            takes(compiling.parsed(arguments))
        case ["uv", "run", "--extra", "classroom", "python", "-m", "assignment.classroom", *arguments]:
            takes(classroom.parsed(arguments), None)
        case ["uv", "run", "python", "-m", "assignment.compiling.agreement", path]:
            assert (ROOT / path).is_dir()
        case ["uv", "run", "python", "-m", "assignment.bank", *arguments]:
            takes(bank.parsed(arguments))
        case ["uv", "run", "--extra", "classroom", "python", "-m", "assignment.bank", *arguments]:
            takes(bank.parsed(arguments))
        case ["uv", "run", "python", "-m", module] if module.startswith("assignment.bank.operators."):
            assert importlib.util.find_spec(module)
        case ["sed", "-i", _, script]:
            assert script in SCRIPTS
        case ["uv", "run", "python", file] | ["uv", "run", "torchrun", "--nproc-per-node", "2", file]:
            assert file.endswith(".py")
        case _:
            pytest.fail(f"no such form of command: {command}")


def options_in(arguments: list[str]) -> set[str]:
    return {argument for argument in arguments if argument.startswith("-")}
