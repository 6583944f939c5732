"""`assignment.new` writes an operator that works at once, or nothing; `assignment.retire` takes one away."""

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from assignment import retire
from assignment.new import __main__ as new
from assignment.new import likeness, names, planted
from assignment.new.names import OperatorError
from tests import operators

ROOT = Path(__file__).resolve().parents[2]
NOT_SIMPLE = ("custom_op", "matmul_block_scaled")  # without kernels, with a function of another name
SIMPLE = [one.name for one in operators.operators() if len(one.problems) == 1 and one.name not in NOT_SIMPLE]


@pytest.fixture
def small(tmp_path):
    """A folder with no more of the repository than an operator, for what comes out wrong."""
    softmax = names.existing("softmax")
    for place in names.places(softmax.name, softmax.file):
        if (ROOT / place).is_dir():
            shutil.copytree(ROOT / place, tmp_path / place, ignore=shutil.ignore_patterns("__pycache__"))
        elif not place.startswith("assignment/reference"):
            (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / place, tmp_path / place)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def files(folder: Path) -> dict[str, str]:
    paths = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in paths}


# Names.


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("softmax_forward, _softmax_kernel, test_softmax.py", "soft_cap_forward, _soft_cap_kernel, test_soft_cap.py"),
        ("from tests.softmax import oracle, models", "from tests.soft_cap import oracle, models"),
        ("oracle.softmax_forward(x), models.softmax_forward", "oracle.soft_cap_forward(x), models.soft_cap_forward"),
        ("class Softmax: Softmax.apply(x)", "class SoftCap: SoftCap.apply(x)"),
        ("x.softmax(-1) torch.softmax F.softmax aten._softmax", "x.softmax(-1) torch.softmax F.softmax aten._softmax"),
        ("softmaxes, presoftmax, softmax2", "softmaxes, presoftmax, softmax2"),
    ],
)
def test_a_name_is_changed_wherever_it_is_the_operators(text, changed):
    assert likeness.renaming(names.existing("softmax"), "soft_cap")(text) == changed


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Relax", "small letters and digits"),
        ("relax.py", "small letters and digits"),
        ("_relax", "small letters and digits"),
        ("class", "a keyword of Python's"),
        ("sum", "a function of Python's"),
        ("json", "a module of Python's standard library"),
        ("language", "a module of Triton's"),
        ("numpy", "an installed package"),
        ("softmax", "taken by tests/softmax"),
        ("rows", r"taken by tests/rows\.py"),
        ("layer_norms", "taken by assignment/operators/layer_norms"),
        ("speed", r"taken by handout/speed\.md"),
        ("flash", "the beginning of flash_"),
        ("softmax_forward", "the beginning of softmax_forward, a function"),
        ("powers", r"a word of tests/softmax/models\.py, line \d+"),
    ],
)
def test_names_that_stand_for_something_else_are_refused(name, why):
    with pytest.raises(OperatorError, match=rf"expected a name .*{why}.*: choose another name"):
        names.check(name, names.existing("softmax"), ROOT)


@pytest.mark.parametrize(
    ("like", "why"),
    [
        ("softmx", "expected the name of an operator, got softmx: did you mean softmax"),
        ("nothing_like_it", "there are .*softmax"),
        ("custom_op", "expected an operator with kernels of its own, got custom_op: choose a simpler one"),
        ("flash_attention", "expected an operator of one problem, .* flash_forward_triton.*: choose a simpler one"),
    ],
)
def test_a_model_is_an_operator_of_one_problem(like, why):
    with pytest.raises(OperatorError, match=why):
        names.model(like)


# What is written.


@pytest.mark.parametrize("like", SIMPLE)
def test_it_is_like_any_operator_of_one_problem(like):
    """Every file parses, none says the old name where it is the operator's, and its bug is an edit of its solution"""
    tree = likeness.tree(names.model(like), "newly", ROOT)
    texts = {place: file.data.decode() for place, file in tree.items()}
    for place, text in texts.items():
        assert like not in place
        if place.endswith(".py") and file_is_text(tree[place]):
            ast.parse(text, place)
    assert like not in texts["tests/newly/record.py"].replace(f"tests.{like}", "")
    solution = texts["assignment/bank/operators/newly/solution.py"]
    edits = planted.negations(solution, names.existing(like).functions[0].outputs[0])
    assert edits
    for old, wrong in edits:
        assert solution.count(old) == 1
        ast.parse(solution.replace(old, wrong))
        assert json.dumps(old)[1:-1] in texts["assignment/bank/operators/newly/bugs.py"].replace("'", '"')
    assert texts[names.CHAPTER.format("newly")].count("\n## ") >= 5


def file_is_text(file: object) -> bool:
    return getattr(file, "mode", "") != "120000"


def test_it_is_one_of_each(small):
    new.write("soft_cap", "softmax", small)
    made = files(small)
    assert made["assignment/bank/operators/soft_cap/bugs.py"].count("bug(") == 1
    assert made["assignment/operators/soft_cap/misconceptions.py"].count(" Misconception(") == 1
    variants = [place for place in made if place.startswith("assignment/bank/operators/soft_cap/variants/")]
    assert sorted(Path(place).name for place in variants) == ["__init__.py", "soft_cap_plain.py"]
    assert (
        'raise NotImplementedError("cs336_kernels/practice/soft_cap.py: soft_cap'
        in (made["cs336_kernels/practice/soft_cap.py"])
    )
    link = small / "assignment/reference/cs336_kernels/practice/soft_cap.py"
    assert link.resolve() == (small / "assignment/bank/operators/soft_cap/solution.py").resolve()


@pytest.mark.parametrize(
    ("name", "fails", "why"),
    [
        ("soft_cap", "run", "expected ruff to format soft_cap, got no ruff here: try uv sync"),
        ("s" * 70, "", r"expected lines of 120 letters, got \d+ in .*, line \d+: choose a shorter name"),
    ],
)
def test_nothing_is_half_written(small, monkeypatch, name, fails, why):
    before = files(small)
    if fails:
        none = subprocess.CompletedProcess([], 1, "", "no ruff here")
        monkeypatch.setattr(new.subprocess, fails, lambda *_, **__: none)
    with pytest.raises(OperatorError, match=why):
        new.write(name, "softmax", small)
    assert files(small) == before


def test_an_interruption_leaves_nothing_behind(small, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    before = files(small)
    monkeypatch.setattr(new, "tidy", interrupted)
    with pytest.raises(KeyboardInterrupt):
        new.write("soft_cap", "softmax", small)
    assert files(small) == before


def test_a_refusal_says_that_nothing_was_written(capsys):
    assert new.main(["list", "--like", "softmax"]) == 2
    assert capsys.readouterr().err.endswith("choose another name; nothing was written\n")


# What is taken away.


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("rmsnorm", [r"course\.toml:\d+: rmsnorm has 20 points there"]),
        ("layernorm", [r"tests/dropout_add_layernorm/oracle\.py:\d+: imports tests\.layernorm\.oracle"]),
        (
            "matmul",
            [
                r"tests/linear_gelu/record\.py:\d+: imports tests\.matmul",
                r"handout\.md:\d+: leads to handout/matmul\.md",
            ],
        ),
    ],
)
def test_what_is_needed_is_not_retired(name, needs, capsys):
    before = {path: path.stat().st_mtime_ns for path in (ROOT / "tests" / name).iterdir()}
    assert retire.main([name]) == 2
    said = capsys.readouterr().err
    for line in needs:
        assert re.search(rf"\n  {line}", said)
    assert said.endswith("\nnothing was removed\n")
    assert {path: path.stat().st_mtime_ns for path in (ROOT / "tests" / name).iterdir()} == before


def test_every_import_is_seen(tmp_path):
    """Relative ones, and those of a package by its name"""
    lines = [
        "import tests.softmax.oracle",
        "from tests import softmax",
        "from .softmax import solution",
        "from . import softmax",
        "from tests import softmax_2, rows",
        "import tests.softmaxes",
    ]
    path = tmp_path / "assignment/bank/operators/other.py"
    found = retire.imports(path, "\n".join(lines), names.existing("softmax"), tmp_path)
    assert [line for line, _ in found] == [1, 2, 3, 4]


def test_what_the_page_and_the_course_say_of_it_goes_too(small):
    """And what still names it is told"""
    page, course, other = small / retire.RESULTS, small / retire.FILE, small / "tests" / "test_other.py"
    rows = ["| rmsnorm | 1 |", "| softmax | 2 |", "| softmax_2 | 2 |", "- softmax/cut-off", "- softmax_split: traffic"]
    page.write_text("\n".join(rows) + "\n", encoding="utf-8")
    course.write_text('[points]\nsoftmax = "practice"\nrmsnorm = 20\n', encoding="utf-8")
    other.write_text("softmax = softmaxes = 1\nOF = 'softmax::test_values'\n", encoding="utf-8")
    removed, left = retire.retire("softmax", small)
    assert "tests/softmax" in removed
    assert page.read_text() == "| rmsnorm | 1 |\n| softmax_2 | 2 |\n"
    assert course.read_text() == "[points]\nrmsnorm = 20\n"
    assert left == ["tests/test_other.py:2"]
    assert {*files(small)} == {"pyproject.toml", "course.toml", "tests/test_other.py", "assignment/bank/results.md"}


# A round trip.


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def python(folder: Path, *arguments: object, status: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The repository as it is committed or worked on."""
    folder = tmp_path_factory.mktemp("copy")
    for name in filter(None, git(ROOT, "ls-files", "-co", "--exclude-standard").splitlines()):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "x")
    return folder


# tests that go over all operators
OF_ALL = (
    *("agents", "bank", "bench", "checks", "cheats", "citations", "course", "explain", "figures", "first_hour"),
    *("handout", "handout_pages", "markdown", "names", "page", "practice", "release", "report", "roles", "strides_met"),
    *("submission", "words"),
)


@pytest.mark.slow
@pytest.mark.parametrize("like", SIMPLE)
def test_it_works_at_once_and_leaves_no_trace(copy, like, tmp_path):
    """Its checks pass, its bug is caught and told, its variant is right; the repository's own tests pass over it"""
    python(copy, "-m", "assignment.new", "newly", "--like", like)
    python(copy, "-m", "ruff", "check")
    python(copy, "-m", "ruff", "format", "--check")
    python(copy, "-m", "assignment.release", "stubs", "--check")
    report = tmp_path / "report.json"
    python(copy, "grade.py", "assignment/reference", "--only", "newly", "--json", report)
    (problem,) = json.loads(report.read_text())["practice"]
    assert (problem["name"], problem["score"]) == ("newly", problem["gradable"])
    said = python(copy, "-m", "assignment.bank", "grade", "newly", "--quick", "--kept", tmp_path / "kept")
    assert "1 of 1 planted bugs caught by their own check" in said
    assert "1 of them are told" in said
    assert "2 of 2 right submissions keep every point" in said
    python(copy, "-m", "assignment.retire", "newly")
    assert git(copy, "status", "--porcelain") == ""


@pytest.mark.slow
def test_the_everyday_tests_pass_with_it(copy):
    python(copy, "-m", "assignment.new", "newly", "--like", "softmax")
    git(copy, "add", "-A")
    git(copy, "commit", "-q", "-m", "newly")
    said = python(copy, "-m", "pytest", "-q", "-rs", *(f"assignment/tests/test_{name}.py" for name in OF_ALL))
    assert "newly is not in results.md yet" in said
