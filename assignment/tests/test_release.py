"""What `python -m assignment.release` cuts, where it refuses, and that nothing depends on when it is run."""

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

from assignment import release
from assignment.bank.corpus import VARIANT, entries
from assignment.classroom import gradescope
from assignment.classroom.autograder.harness import HarnessSettings
from tests import operators

SOURCE = '''"""A kernel."""

import torch

# BEGIN SOLUTION
TILE_SIZE = 64
# END SOLUTION


def forward(x):
    """The sum."""
    # BEGIN SOLUTION handout/sum.md
    if x is None:
        raise ValueError

    return x + helper()
    # END SOLUTION


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        # BEGIN SOLUTION handout/sum.md#a-total total
        return forward(x)
        # END SOLUTION


# BEGIN SOLUTION
def helper():
    return 0


# END SOLUTION
'''

STUB = '''"""A kernel."""

import torch


def forward(x):
    """The sum."""
    raise NotImplementedError("cs336_kernels/sum.py: forward, handout/sum.md")


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        raise NotImplementedError("cs336_kernels/sum.py: total, handout/sum.md#a-total")
'''

FILES: dict[str, str | bytes] = {
    ".ci/run": "#!/bin/sh\n",
    ".gitignore": "*.pyc\n",
    "README.md": "# Kernels\n<!-- BEGIN STAFF -->\nFor staff.\n<!-- END STAFF -->\n",
    "assignment/README.md": "For staff.\n",
    "assignment/bank/run/wrong.py": "",
    "assignment/commands/cli.py": "",
    "assignment/reference/cs336_kernels/sum.py": SOURCE,
    "assignment/release.py": "",
    "assignment/tests/test_release.py": "",
    "cs336_kernels/sum.py": STUB,
    "figure.png": b"\x89PNG\xff# BEGIN STAFF\n",
    "pyproject.toml": 'testpaths = [\n    "tests",\n# BEGIN STAFF\n    "assignment/tests",\n# END STAFF\n]\n',
    "tests/test_sum.py": "",
}
STUDENT_FILES = [
    ".gitignore",
    "README.md",
    "assignment/commands/cli.py",
    "cs336_kernels/sum.py",
    "figure.png",
    "pyproject.toml",
    "tests/test_sum.py",
]


def git(repository: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", repository, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(repository: Path, message: str = "Change") -> None:
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", message)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(autouse=True)
def git_settings(monkeypatch, tmp_path):
    """Nobody's own git configuration, and a date that is not today."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "A. Teacher")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "teacher@example.org")
        monkeypatch.setenv(f"GIT_{who}_DATE", "1700000000 +0100")


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "repository"
    for path, text in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(text if isinstance(text, bytes) else text.encode())
    git(root, "init", "--quiet", "--initial-branch", "main")
    commit(root)
    return root


def test_stub_keeps_everything_but_the_solutions():
    assert release.stub(SOURCE, "cs336_kernels/sum.py") == STUB


def test_solution_is_the_reference_without_the_markers():
    expected = [line for line in SOURCE.splitlines() if "SOLUTION" not in line]
    assert release.solution(SOURCE, "cs336_kernels/sum.py") == "\n".join(expected[:-2]) + "\n"


WRONG_MARKERS = {
    "no end": ("x = 1\n# BEGIN SOLUTION\ny = 2\n", "k.py:2: BEGIN SOLUTION without an END"),
    "no begin": ("x = 1\n# END SOLUTION\n", "k.py:2: END SOLUTION without a BEGIN"),
    "nested": ("# BEGIN SOLUTION\n\n# BEGIN SOLUTION\n# END SOLUTION\n", "k.py:3: .* that line 1 begins"),
    "no section": (
        "def f():\n    # BEGIN SOLUTION\n    # END SOLUTION\n",
        "k.py:2: .* needs the handout's section",
    ),
    "a colon": ("# BEGIN SOLUTION: 4\n# END SOLUTION\n", "k.py:1: expected # BEGIN SOLUTION"),
}


@pytest.mark.parametrize(("source", "message"), WRONG_MARKERS.values(), ids=WRONG_MARKERS)
def test_a_wrong_marker_is_named_with_file_and_line(source, message):
    with pytest.raises(release.ReleaseError, match=f"^assignment/reference/cs336_kernels/{message}"):
        release.stub(source, "cs336_kernels/k.py")


def test_stubs_of_this_repository_are_generated():
    """By the course that course.toml says"""
    command = [sys.executable, "-m", "assignment.release", "stubs", "--check"]
    done = subprocess.run(command, cwd=release.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_reference_links_to_the_solution_of_every_operator():
    for operator in operators.operators():
        solution = release.ROOT / "assignment/bank/operators" / operator.name / "solution.py"
        assert (release.ROOT / "assignment/reference" / operator.file).resolve() == solution
        assert (release.ROOT / "assignment/reference" / operator.file).is_symlink()


@pytest.fixture
def linked(repository):
    """Of the operators one that is there, with its solution beside the specification and in no reference yet."""
    (repository / "assignment/bank/operators/rmsnorm").mkdir(parents=True)
    (repository / "assignment/bank/operators/rmsnorm/solution.py").write_text(SOURCE)
    return repository


def test_stubs_writes_the_links_that_are_missing(linked, capsys):
    link = linked / "assignment/reference/cs336_kernels/rmsnorm.py"
    assert release.main(["stubs", "--check"], linked) == 1
    assert not link.exists()
    for _ in range(2):
        assert release.main(["stubs"], linked) == 0
        assert link.readlink() == Path("../../bank/operators/rmsnorm/solution.py")
        assert release.main(["stubs", "--check"], linked) == 0
    assert (linked / "cs336_kernels/rmsnorm.py").read_text() == STUB.replace("sum.py", "rmsnorm.py")
    link.unlink()
    link.symlink_to("sum.py")
    capsys.readouterr()
    assert release.main(["stubs", "--check"], linked) == 1
    assert "+../../bank/operators/rmsnorm/solution.py" in capsys.readouterr().out


@pytest.mark.parametrize("is_linked", [True, False], ids=["linked", "the link forgotten"])
def test_releases_have_files_where_the_reference_has_links(linked, tmp_path, is_linked):
    if is_linked:
        release.main(["stubs"], linked)
    commit(linked)
    for name, expected in {
        "student": STUB.replace("sum.py", "rmsnorm.py"),
        "solution": release.solution(SOURCE, ""),
    }.items():
        assert release.main([name, "--to", str(tmp_path / name)], linked) == 0
        written = tmp_path / name / "cs336_kernels/rmsnorm.py"
        assert written.read_text() == expected
        assert not written.is_symlink()
        assert not (tmp_path / name / "assignment/operators").exists()
        assert not (tmp_path / name / "assignment/reference").exists()


def test_a_link_to_nothing_is_told(repository, capsys):
    (repository / "assignment/reference/cs336_kernels/lost.py").symlink_to("../gone.py")
    commit(repository)
    told = refusal(capsys, ["student", "--branch", "s"], repository)
    assert "cs336_kernels/lost.py leads to assignment/reference/gone.py, which is not there" in told


def test_stubs_check_tells_equal_from_different(repository, capsys):
    assert release.main(["stubs", "--check"], repository) == 0
    (repository / "cs336_kernels/sum.py").write_text(STUB.replace("The sum", "A sum"))
    assert release.main(["stubs", "--check"], repository) == 1
    assert '-    """A sum."""\n+    """The sum."""\n' in capsys.readouterr().out
    assert release.main(["stubs"], repository) == 0
    assert release.main(["stubs", "--check"], repository) == 0
    (repository / "cs336_kernels/more.py").write_text("x = 1\n")
    assert release.main(["stubs", "--check"], repository) == 1
    assert "cs336_kernels/more.py" in capsys.readouterr().out


def test_student_release_has_no_solution_and_nothing_of_staff(repository, tmp_path):
    assert release.main(["student", "--to", str(tmp_path / "out")], repository) == 0
    out = contents(tmp_path / "out")
    assert sorted(out) == STUDENT_FILES
    assert out["cs336_kernels/sum.py"].decode() == STUB
    assert out["README.md"].decode() == "# Kernels\n"
    assert out["pyproject.toml"].decode() == 'testpaths = [\n    "tests",\n]\n'
    assert out["figure.png"] == FILES["figure.png"]


def test_solution_release_is_the_student_release_with_the_reference(repository, tmp_path):
    for name in ("student", "solution"):
        assert release.main([name, "--to", str(tmp_path / name)], repository) == 0
    student, solution = contents(tmp_path / "student"), contents(tmp_path / "solution")
    assert solution.pop("cs336_kernels/sum.py").decode() == release.solution(SOURCE, "")
    assert student.pop("cs336_kernels/sum.py").decode() == STUB
    assert solution == student


def test_programs_and_links_stay_what_they_are(repository, tmp_path):
    (repository / "run").write_text("#!/bin/sh\n")
    (repository / "run").chmod(0o755)
    (repository / "link").symlink_to("README.md")
    commit(repository)
    assert release.main(["student", "--to", str(tmp_path / "out"), "--branch", "student"], repository) == 0
    assert (tmp_path / "out/run").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "out/link").readlink() == Path("README.md")
    modes = git(repository, "ls-tree", "--format=%(objectmode) %(path)", "student").splitlines()
    assert {"100755 run", "120000 link", "100644 README.md"} <= set(modes)


def test_the_same_commit_gives_the_same_bytes_and_the_same_branch(repository, tmp_path, monkeypatch):
    git(tmp_path, "clone", "--quiet", str(repository), "clone")
    monkeypatch.setenv("GIT_COMMITTER_DATE", "1800000000 +0000")
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Somebody Else")
    clones = (repository, tmp_path / "clone")
    for number, root in enumerate(clones):
        assert release.main(["student", "--branch", "student", "--to", str(tmp_path / f"out{number}")], root) == 0
    assert contents(tmp_path / "out0") == contents(tmp_path / "out1")
    assert git(clones[0], "rev-parse", "student") == git(clones[1], "rev-parse", "student")
    source = git(repository, "rev-parse", "main")
    message = git(repository, "log", "-1", "--date=raw", "--format=%an %cd%n%B", "student")
    assert message == f"A. Teacher 1700000000 +0100\nStudent release\n\nCut from {source}."


def test_a_branch_holds_what_the_folder_holds_and_nothing_else_changes(repository, tmp_path):
    before = git(repository, "rev-parse", "HEAD"), contents(repository / "assignment")
    assert release.main(["solution", "--branch", "solution", "--to", str(tmp_path / "out")], repository) == 0
    git(tmp_path, "clone", "--quiet", "--branch", "solution", str(repository), "clone")
    out = contents(tmp_path / "out")
    assert {path: (tmp_path / "clone" / path).read_bytes() for path in out} == out
    assert git(repository, "ls-tree", "-r", "--name-only", "solution").splitlines() == sorted(out)
    assert (git(repository, "rev-parse", "HEAD"), contents(repository / "assignment")) == before
    assert git(repository, "status", "--porcelain") == ""
    assert git(repository, "branch", "--show-current") == "main"


def test_a_later_release_can_be_pulled(repository, capsys):
    release.main(["student", "--branch", "student"], repository)
    first = git(repository, "rev-parse", "student")
    (repository / "assignment/README.md").write_text("Not for students.\n")
    commit(repository)
    assert release.main(["student", "--branch", "student"], repository) == 0
    assert git(repository, "rev-parse", "student") == first
    assert "up to date" in capsys.readouterr().out
    (repository / "README.md").write_text("# Better kernels\n")
    commit(repository)
    assert release.main(["student", "--branch", "student"], repository) == 0
    assert git(repository, "rev-parse", "student^") == first
    assert git(repository, "show", "student:README.md") == "# Better kernels"


def update_commands() -> list[str]:
    """The commands of the README's section on updates."""
    section = (release.ROOT / "README.md").read_text(encoding="utf-8").partition("## Update your copy")[2]
    return section.partition("```sh\n")[2].partition("```")[0].splitlines()


def copy_of(kind: str, repository: Path, folder: Path) -> None:
    """A student's copy of the release: a clone, or a repository of their own that knows nothing of the release's."""
    if kind == "a clone":
        git(folder.parent, "clone", "--quiet", "--branch", "student", str(repository), folder.name)
        return
    assert release.main(["student", "--to", str(folder)], repository) == 0
    git(folder, "init", "--quiet", "--initial-branch", "main")
    commit(folder, "Handed out")


@pytest.mark.parametrize("kind", ["a clone", "another history"])
def test_students_update_their_copy_and_keep_their_work(repository, tmp_path, kind):
    """By the README's commands: new files come, removed ones go, and what is theirs stays as it is"""
    for path, text in {
        "handout/old.md": "Old",
        "tests/test_old.py": "old",
        "assignment/README.md": "For staff",
    }.items():
        (repository / path).parent.mkdir(exist_ok=True)
        (repository / path).write_text(text)
    commit(repository)
    release.main(["student", "--branch", "student"], repository)
    mine = tmp_path / "mine"
    copy_of(kind, repository, mine)
    work = {"cs336_kernels/sum.py": b"solved", "cs336_kernels/helpers.py": b"help", "notes.md": b"notes"}
    for path, data in work.items():
        (mine / path).write_bytes(data)
    commit(mine, "Solved")
    (mine / "cs336_kernels/sum.py").write_bytes(b"being changed")
    (mine / "scratch.py").write_bytes(b"never added")

    git(repository, "rm", "--quiet", "handout/old.md", "tests/test_old.py")
    changes = {
        "handout/new.md": "New",
        "tests/test_sum.py": "better",
        "README.md": "# Better",
        ".github/ci.yml": "on: push",
    }
    changes |= {"assignment/reference/cs336_kernels/sum.py": SOURCE.replace("A kernel.", "A better kernel.")}
    for path, text in changes.items():
        (repository / path).parent.mkdir(exist_ok=True)
        (repository / path).write_text(text)
    release.main(["stubs"], repository)
    commit(repository)
    release.main(["student", "--branch", "student", "--to", str(tmp_path / "second")], repository)

    commands = [
        line.replace("RELEASE", "origin" if kind == "a clone" else str(repository)) for line in update_commands()
    ]
    subprocess.run("\n".join(["set -e", *commands]), shell=True, cwd=mine, check=True, capture_output=True)
    now = {path: data for path, data in contents(mine).items() if not path.startswith(".git/")}
    released = {p: d for p, d in contents(tmp_path / "second").items() if not p.startswith("cs336_kernels/")}
    assert released["README.md"] == b"# Better"
    own = work | {"cs336_kernels/sum.py": b"being changed", "scratch.py": b"never added"}
    assert now == released | own
    assert git(mine, "status", "--porcelain").splitlines() == ["M cs336_kernels/sum.py", "?? scratch.py"]
    assert git(mine, "show", "HEAD:cs336_kernels/sum.py") == "solved"


def refusal(capsys, arguments: list[str], root: Path) -> str:
    """The one line on stderr of a command that must refuse."""
    assert release.main(arguments, root) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("release: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_a_dirty_tree_is_refused_and_the_files_are_named(repository, tmp_path, capsys):
    (repository / "README.md").write_text("# Changed\n")
    (repository / "new file.py").write_text("")
    said = refusal(capsys, ["student", "--to", str(tmp_path / "out")], repository)
    assert "README.md, new file.py" in said
    assert not (tmp_path / "out").exists()


def test_a_folder_in_use_is_refused(repository, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/homework.py").write_text("precious")
    assert "not an empty folder" in refusal(capsys, ["student", "--to", str(tmp_path / "out")], repository)
    assert contents(tmp_path / "out") == {"homework.py": b"precious"}
    assert "not an empty folder" in refusal(capsys, ["student", "--to", str(tmp_path / "out/homework.py")], repository)


def test_a_branch_in_use_is_refused(repository, tmp_path, capsys):
    assert "checked out" in refusal(capsys, ["student", "--branch", "main"], repository)
    git(repository, "branch", "work")
    assert "holds something else" in refusal(capsys, ["student", "--branch", "work"], repository)
    release.main(["student", "--branch", "student"], repository)
    git(repository, "worktree", "add", "--quiet", str(tmp_path / "elsewhere"), "student")
    capsys.readouterr()
    assert "checked out" in refusal(capsys, ["student", "--branch", "student"], repository)
    assert "not a valid branch name" in refusal(capsys, ["student", "--branch", "a..b"], repository)


def test_where_there_is_nothing_to_cut_from_it_says_so(repository, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert "not the top of a git repository" in refusal(capsys, ["student", "--branch", "s"], tmp_path / "empty")
    git(tmp_path / "empty", "init", "--quiet")
    assert "no commit yet" in refusal(capsys, ["student", "--branch", "s"], tmp_path / "empty")
    assert "there is no assignment/reference" in refusal(capsys, ["stubs"], tmp_path / "empty")
    git(repository, "rm", "-r", "--quiet", "assignment/reference")
    commit(repository)
    assert "there is no assignment/reference" in refusal(capsys, ["student", "--branch", "s"], repository)


def test_a_release_goes_somewhere(repository, capsys):
    with pytest.raises(SystemExit, match="2"):
        release.main(["student"], repository)
    assert "--to DIR, --branch NAME" in capsys.readouterr().err


def imported_modules(source: str, path: str) -> set[str]:
    """The modules that a file imports, dotted, relative ones in full."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = Path(path).parts[: -node.level] if node.level else ()
            base = ".".join([*package, *filter(None, [node.module])])
            found |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return found


def test_a_relative_import_is_read_in_full():
    assert "assignment.tests.frames" in imported_modules("from ..tests import frames", "assignment/judge/pool.py")
    assert "assignment.verdict.score" in imported_modules("from .score import OK", "assignment/verdict/where.py")


def tree_of_this_repository() -> release.Tree:
    listed = git(release.ROOT, "ls-files", "--cached", "--others", "--exclude-standard").splitlines()
    return {path: release.File((release.ROOT / path).read_bytes()) for path in listed if (release.ROOT / path).exists()}


def student_release_of_this_repository() -> release.Tree:
    return release.student_tree(tree_of_this_repository())


def test_nothing_that_students_get_imports_what_they_do_not_get():
    dropped = tuple(path.removesuffix(".py").rstrip("/").replace("/", ".") + "." for path in release.STAFF_ONLY)
    student = student_release_of_this_repository()
    assert {"grade.py", "pyproject.toml", "cs336_kernels/rmsnorm.py"} <= set(student)
    for path, file in student.items():
        assert not path.startswith(release.STAFF_ONLY)
        if path.endswith(".py"):
            imported = {f"{name}." for name in imported_modules(file.data.decode(), path)}
            assert not [name for name in imported if name.startswith(dropped)], path


RUN = 8  # so many lines of code in a row are told apart from lines that everybody writes


@functools.cache
def work(source: str) -> list[tuple[int, str]]:
    """The lines of a module that do something, with their numbers: no signatures, docstrings, imports and comments."""
    tree, left = ast.parse(source), set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            left |= {*range(min([node, *node.decorator_list], key=lambda n: n.lineno).lineno, node.body[0].lineno)}
        if isinstance(node, ast.Import | ast.ImportFrom) or is_listing(node):
            left |= {*range(node.lineno, (node.end_lineno or 0) + 1)} if isinstance(node, ast.stmt) else set()
    lines = [(number, line.strip()) for number, line in enumerate(source.splitlines(), start=1) if number not in left]
    return [(number, line) for number, line in lines if re.search(r"\w", line) and not line.startswith("#")]


def is_listing(node: ast.AST) -> bool:
    """Whether a statement is a docstring, a constant or a list of names."""
    value = getattr(node, "value", None)
    names = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
    return all(isinstance(name, ast.Constant) for name in names)


def runs(lines: list[str]) -> set[tuple[str, ...]]:
    return {tuple(lines[i : i + RUN]) for i in range(len(lines) - RUN + 1)}


def secrets_of_the_bank() -> dict[str, set[tuple[str, ...]]]:
    """What students write or may copy: blocks of solutions, variants, what bugs edit, peers of staff's."""
    bank = release.ROOT / "assignment/bank/operators"
    found = {path: runs([line for _, line in work(path.read_text())]) for path in bank.glob("*/peers/*.py")}
    for entry in entries():
        if entry.kind == VARIANT and entry.name != "variants/reference":
            files = [work(content.decode()) for content in set(entry.submission.files.values())]
            found[Path(entry.name)] = {run for lines in files for run in runs([line for _, line in lines])}
    for path in bank.glob("*/solution.py"):
        lines, source = work(path.read_text()), path.read_text()
        for block in re.finditer(r"# BEGIN SOLUTION.*?# END SOLUTION", source, re.DOTALL):
            first, last = (source.count("\n", 0, at) + 1 for at in block.span())
            found[path.with_name(f"block of line {first}")] = runs([line for n, line in lines if first < n < last])
    return {path.as_posix(): lines for path, lines in found.items() if "vector_add" not in path.as_posix()}


@pytest.mark.parametrize("made", ["student", "gradescope"])
def test_students_get_nothing_of_the_bank(made):
    tree = student_release_of_this_repository()
    if made == "gradescope":
        tree = gradescope.packed(tree_of_this_repository(), HarnessSettings("0" * 40, None, "visible", 38.0))
    assert not [path for path in tree if "/bank/" in path]
    sources = {path: file.data.decode() for path, file in tree.items() if path.endswith((".py", ".md"))}
    theirs = {path: [line for _, line in work(source)] for path, source in sources.items() if path.endswith(".py")}
    theirs |= {path: list(map(str.strip, text.splitlines())) for path, text in sources.items() if path not in theirs}
    public = set().union(*map(runs, theirs.values()))
    secret = secrets_of_the_bank()
    assert sum(map(len, secret.values())) > 1000
    assert not {name: found for name, lines in secret.items() if (found := lines & public)}


def test_students_do_not_get_what_the_simulator_is_compared_by():
    """Neither the table of constructs and what a GPU answered, nor a word of it"""
    student = student_release_of_this_repository()
    assert not [path for path in student if "constructs" in path]
    assert b"constructs/" not in student["README.md"].data


def test_a_workflow_is_in_the_release_where_a_grader_is_named(repository, tmp_path, capsys):
    (repository / release.ITS_SOURCE).parent.mkdir(parents=True)
    (repository / release.ITS_SOURCE).write_text("repository: GRADER_REPOSITORY\nref: GRADER_COMMIT\n")
    commit(repository)
    grader = "acme/kernels@" + "0a" * 20
    for name, more in (("with", ["--grader", grader]), ("without", [])):
        assert release.main(["student", "--to", str(tmp_path / name), *more], repository) == 0
    with_it, without = contents(tmp_path / "with"), contents(tmp_path / "without")
    assert with_it.pop(release.WORKFLOW) == f"repository: acme/kernels\nref: {'0a' * 20}\n".encode()
    assert with_it == without
    assert release.main(["student", "--to", str(tmp_path / "no"), "--grader", "acme/kernels"], repository) == 2
    assert "expected OWNER/NAME@COMMIT" in capsys.readouterr().err


def test_check_cuts_nothing_and_says_what_is_in_the_way(repository, capsys):
    assert release.main(["student", "--check"], repository) == 0
    assert re.fullmatch(r"student: \d+ files; nothing is in the way\n", capsys.readouterr().out)
    (repository / "handout.md").write_text("# A\n\nAll of it is worth 7 points.\n")
    commit(repository)
    assert release.main(["student", "--check", "--branch", "student"], repository) == 2
    assert "handout.md:3: 7 points: expected a comment that says whose" in capsys.readouterr().err
    assert git(repository, "for-each-ref", "refs/heads/student") == ""
