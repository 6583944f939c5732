"""Cuts what students get out of what staff keep.

    python -m assignment.release stubs [--check]                        cs336_kernels/ from the solutions
    python -m assignment.release student [--to DIR] [--branch NAME]     the student release; with
                                         [--grader OWNER/NAME@COMMIT]   a workflow that grades it on GitHub
                                         [--check]                      only says whether it can be cut
    python -m assignment.release solution [--to DIR] [--branch NAME]    the same, with the reference as cs336_kernels/

Releases are cut from the last commit, never from the working tree, which must be clean and is not touched; the same
commit gives the same bytes. Two pairs of comments, each on a line of its own, say what goes:

    # BEGIN SOLUTION handout/rmsnorm.md#algorithm   in a solution, up to # END SOLUTION
        Inside a function a stub raises NotImplementedError instead, naming file, function and section of the handout;
        a name after the section stands for that of the enclosing function. At the left margin the block leaves nothing
        behind.
    # BEGIN STAFF   in any file, up to # END STAFF; in Markdown <!-- BEGIN STAFF --> and <!-- END STAFF -->

Solutions lie with their operators. The reference, in which they are a package, links to them; `stubs` writes the links.
"""

import argparse
import ast
import difflib
import os
import posixpath
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from assignment.commands import handout
from assignment.course import CourseError, course
from assignment.handout import in_course, notebook
from assignment.verdict import checks
from tests import operators

ROOT = Path(__file__).parents[1]
STUBS = "cs336_kernels/"
REFERENCE = "assignment/reference/cs336_kernels/"
BANK, SOLUTION = "assignment/bank/operators/", "/solution.py"
# the kernels that stubs have, where the reference's own differ
SKELETONS = "/skeletons.py"
LINK = "120000"  # git's mode of a symbolic link, whose contents are the path that it leads to
WORKFLOW, ITS_SOURCE = ".github/workflows/grade.yml", "assignment/classroom/github/grade.yml"
GRADER = re.compile(r"([\w.-]+/[\w.-]+)@([0-9a-f]{40})")  # a repository on GitHub, and a commit of it
CITED = re.compile(r"\bhandout(?:/\w+)?\.md(?:#[\w-]+)?")
CITING = ("tests", "assignment/operators", "cs336_kernels")  # what students read of files that are no pages
LINE_LENGTH = 120  # pyproject.toml's
STAFF_ONLY = (
    ".ci/",
    "assignment/README.md",
    "assignment/bank/",
    "assignment/classroom/",
    "assignment/handout/",
    "assignment/new/",
    "assignment/reference/",
    "assignment/release.py",
    "assignment/retire.py",
    "assignment/tests/",
)


class ReleaseError(Exception):
    """A sentence for the person at the terminal."""


@dataclass(frozen=True)
class File:
    data: bytes
    mode: str = "100644"  # git's: 100755 for a program, and LINK


Tree = dict[str, File]  # by path, from the root of the repository


# What a release is: functions of text and trees.


def replace_blocks(text: str, kind: str, path: str, replacement: Callable[[int, str, list[str]], list[str]]) -> str:
    """Return text with `replacement(line number, line, lines between)` for each block of a kind."""
    marker = re.compile(rf"\s*(?:#|<!--) (BEGIN|END) {kind}\b.*")
    kept: list[str] = []
    block: list[str] = []
    begin_number, begin_line = 0, ""
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        match = marker.fullmatch(line.rstrip("\r\n"))
        if match is None:
            (block if begin_number else kept).append(line)
        elif match[1] == "BEGIN" and begin_number:
            raise ReleaseError(f"{path}:{number}: BEGIN {kind} inside the block that line {begin_number} begins")
        elif match[1] == "BEGIN":
            begin_number, begin_line, block = number, line, []
        elif not begin_number:
            raise ReleaseError(f"{path}:{number}: END {kind} without a BEGIN {kind}")
        else:
            kept += replacement(begin_number, begin_line, block)
            begin_number = 0
    if begin_number:
        raise ReleaseError(f"{path}:{begin_number}: BEGIN {kind} without an END {kind}")
    return "".join(kept)


def stub(source: str, path: str) -> str:
    """Return the stub of a reference file; path is the stub's own."""
    lines, origin = source.splitlines(), path.replace(STUBS, REFERENCE, 1)

    def replacement(number: int, begin_line: str, block: list[str]) -> list[str]:
        match = re.fullmatch(r"( *)# BEGIN SOLUTION(?: (handout/\S+))?(?: (\w+))?", begin_line.rstrip())
        if match is None:
            raise ReleaseError(f"{origin}:{number}: expected # BEGIN SOLUTION [SECTION [FUNCTION]]")
        indent, section, function = match.groups()
        if not indent:
            return []
        if section is None:
            raise ReleaseError(f"{origin}:{number}: BEGIN SOLUTION inside a function needs the handout's section")
        enclosing = [m[1] for line in lines[:number] if (m := re.match(r" *def (\w+)", line))]
        off = [one.section for one in operators.problems().values() if one.name not in checks.problems()]
        there = section.partition("#")[0] if section in off else section
        return raising(f"{path}: {function or enclosing[-1]}, {handout.address(there)}", indent)

    return tidy(without_what_is_off(replace_blocks(source, "SOLUTION", origin, replacement)))


def without_what_is_off(source: str) -> str:
    """Return source without the functions that the course leaves out, and the comments above them."""
    off = {name for name, function in operators.functions().items() if not has(function)}
    lines = source.splitlines(keepends=True)
    for node in reversed(ast.parse(source).body):
        if isinstance(node, ast.FunctionDef) and node.name in off:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
            while lines[first - 1].startswith("#"):
                first -= 1
            del lines[first : node.end_lineno]
    return "".join(lines)


def raising(message: str, indent: str) -> list[str]:
    """Return the lines that raise NotImplementedError, as the formatter breaks them."""
    line = f'{indent}raise NotImplementedError("{message}")\n'
    if len(line.rstrip()) <= LINE_LENGTH:
        return [line]
    return [f"{indent}raise NotImplementedError(\n", f'{indent}    "{message}"\n', f"{indent})\n"]


def solution(source: str, path: str) -> str:
    """Return a reference file without its markers."""
    origin = path.replace(STUBS, REFERENCE, 1)
    return tidy(replace_blocks(source, "SOLUTION", origin, lambda _number, _begin_line, block: block))


def tidy(source: str) -> str:
    """Return source with no more than two blank lines anywhere, and none at its end, as a formatter wants it."""
    return re.sub(r"\n{4,}", "\n\n\n", source).rstrip("\n") + "\n"


def without_staff_blocks(data: bytes, path: str) -> bytes:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data
    return replace_blocks(text, "STAFF", path, lambda *_: []).encode()


def kernels(tree: Tree, rewrite: Callable[[str, str], str]) -> Tree:
    """Return cs336_kernels/, each file being rewritten from the reference's; those of operators that are off are not.

    The package exports what the course grades.
    """
    tree = tree | links(tree)
    names = [path.removeprefix(REFERENCE) for path in tree if path.startswith(REFERENCE)]
    if not names:
        raise ReleaseError(f"there is no {REFERENCE} to cut a release from")
    off = {each.file for each in operators.operators() if is_off(each)}
    paths = [STUBS + name for name in names if STUBS + name not in off]
    sources = {path: followed(tree, path.replace(STUBS, REFERENCE, 1)).decode() for path in paths}
    made = {path: File(rewrite(source, path).encode()) for path, source in sources.items()}
    return made | {path: File(exports().encode()) for path in made if path == f"{STUBS}__init__.py"}


def has(function: operators.Function) -> bool:
    """Return whether the course has a function: its problem, or some problem of its operator, is not off."""
    own = (
        [function.problem] if function.problem else [one.name for one in operators.operator_of(function.name).problems]
    )
    return any(name in checks.problems() for name in own)


def is_off(operator: operators.Operator) -> bool:
    return not any(map(has, operator.functions))


def exports() -> str:
    """Return the package's __init__.py, which exports what the course grades."""
    names: dict[str, list[str]] = {}
    for each in operators.operators():
        is_graded = not each.is_apart or any(not checks.is_practice(one.name) for one in each.problems)
        own = [function.name for function in each.functions if is_graded and has(function)]
        if own:
            names["." + each.file.removeprefix(STUBS).removesuffix(".py").replace("/", ".")] = own
    lines = ['"""The functions of the assignment; `handout.md` says what each of them computes."""', ""]
    for module in sorted(names):
        line = f"from {module} import {', '.join(sorted(names[module]))}"
        broken = [f"from {module} import (", *(f"    {name}," for name in sorted(names[module])), ")"]
        lines += [line] if len(line) <= LINE_LENGTH else broken
    every = [f'    "{name}",' for own in names.values() for name in own]
    return "\n".join([*lines, "", "__all__ = [  # noqa: RUF022, the order of the course", *every, "]", ""])


def stubs(tree: Tree) -> Tree:
    """Return cs336_kernels/ as students get it: the reference's stubs, and the skeletons of kernels."""
    made = kernels(tree, stub)
    for each in operators.operators():
        skeletons = tree.get(BANK + each.name + SKELETONS)
        if skeletons and each.file in made:
            added = stub(skeletons.data.decode(), each.file)
            made[each.file] = File(made[each.file].data + b"\n\n" + added.lstrip("\n").encode())
    return made


def followed(tree: Tree, path: str) -> bytes:
    """Return the contents of a file, or of the one that a symbolic link leads to."""
    if tree[path].mode != LINK:
        return tree[path].data
    target = posixpath.normpath(posixpath.join(posixpath.dirname(path), tree[path].data.decode()))
    if target not in tree:
        raise ReleaseError(f"{path} leads to {target}, which is not there")
    return tree[target].data


def links(tree: Tree) -> Tree:
    """Return the reference's links to the operators' solutions, each where its operator's file belongs."""
    places = {REFERENCE + each.file.removeprefix(STUBS): BANK + each.name + SOLUTION for each in operators.operators()}
    return {
        place: File(posixpath.relpath(solution, posixpath.dirname(place)).encode(), LINK)
        for place, solution in places.items()
        if solution in tree
    }


def is_staff_only(path: str) -> bool:
    """Return whether students do not get it; a list of people, an extension for example, is a file of CSV."""
    return path.startswith(STAFF_ONLY) or path.lower().endswith(".csv")


def student_tree(tree: Tree) -> Tree:
    kept = {path: file for path, file in tree.items() if not is_staff_only(path) and not path.startswith(STUBS)}
    kept = {path: File(without_staff_blocks(file.data, path), file.mode) for path, file in kept.items()}
    pages = pages_of(kept)
    written = in_course.pages(pages)
    kept = {path: file for path, file in kept.items() if path not in pages}
    kept |= {path: File(text.encode()) for path, text in written.items()}
    package = stubs(tree)
    if page := written.get(notebook.PAGE):
        named = in_course.EXERCISES.search(pages[notebook.PAGE])
        files = {name: operators.operator_of(name).file for name in (named[1].split() if named else ())}
        exercises = {
            name: (file, package[file].data.decode())
            for name, file in files.items()
            if file in package and has(operators.functions()[name])
        }
        kept[notebook.NOTEBOOK] = File(notebook.of_page(page, exercises, course().repository))
    return agreed(dict(sorted((kept | package).items())), pages)


def pages_of(tree: Tree) -> dict[str, str]:
    return {path: file.data.decode() for path, file in tree.items() if in_course.PAGE.fullmatch(path)}


def sections(pages: dict[str, str]) -> set[str]:
    """Return all that can be cited: pages, and their headings' anchors."""
    anchors = {f"{path}#{name}" for path in pages for _, _, name in handout.headings(pages[path].splitlines())}
    return anchors | pages.keys()


def agreed(tree: Tree, before: dict[str, str]) -> Tree:
    """Return a release; raises ReleaseError where it names what the course leaves out of the pages before."""
    pages = pages_of(tree)
    left_out = sections(before) - sections(pages)
    files = [each.file for each in operators.operators() if is_off(each)]
    for path, text in pages.items():
        source = before[path].splitlines()
        for line in text.splitlines():
            if named := next((file for file in files if file in line), ""):
                number = source.index(line) + 1 if line in source else 1
                raise ReleaseError(f"{path}:{number}: the course leaves {named} out; name another file")
    off = tuple(f"{room}/{each.name}/" for each in operators.operators() if is_off(each) for room in CITING)
    for path, file in tree.items():
        if path.endswith(".py") and path.startswith(CITING) and not path.startswith(off):
            for number, line in enumerate(file.data.decode().splitlines(), start=1):
                if gone := left_out & set(CITED.findall(line)):
                    raise ReleaseError(f"{path}:{number}: the course leaves {min(gone)} out; cite another section")
    return tree


def pinned(template: bytes, grader: str) -> bytes:
    """Return a file of ours that names the grader with its repository and commit, of "OWNER/NAME@COMMIT"."""
    match = GRADER.fullmatch(grader)
    if match is None:
        raise ReleaseError(f"--grader {grader}: expected OWNER/NAME@COMMIT, a repository on GitHub and all 40 digits")
    return template.replace(b"GRADER_REPOSITORY", match[1].encode()).replace(b"GRADER_COMMIT", match[2].encode())


def solution_tree(tree: Tree) -> Tree:
    return dict(sorted((student_tree(tree) | kernels(tree, solution)).items()))


RELEASES = {"student": ("Student release", student_tree), "solution": ("Solution", solution_tree)}


# Where it comes from and goes to: git and folders.


def git(root: Path, *arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> bytes:
    command = ["git", "-C", str(root), *arguments]
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, env=os.environ | (env or {}))
    except FileNotFoundError:
        raise ReleaseError("git is not installed") from None
    if done.returncode != 0:
        raise ReleaseError(f"git {arguments[0]}: {os.fsdecode(done.stderr).strip() or 'failed'}")
    return done.stdout


def git_line(root: Path, *arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> str:
    return os.fsdecode(git(root, *arguments, stdin=stdin, env=env)).strip()


def head_commit(root: Path) -> str:
    """Return the commit to cut from; raises ReleaseError if there is none, or if the working tree differs from it."""
    if not (root / ".git").exists():
        raise ReleaseError(f"{root} is not the top of a git repository")
    try:
        commit = git_line(root, "rev-parse", "--verify", "HEAD")
    except ReleaseError:
        raise ReleaseError(f"{root} has no commit yet; a release is cut from the last one") from None
    status = os.fsdecode(git(root, "status", "--porcelain", "-z", "--no-renames"))
    dirty = [entry[3:] for entry in status.split("\0") if entry]
    if dirty:
        raise ReleaseError(f"commit or remove first, a release is cut from the last commit: {', '.join(dirty)}")
    return commit


def read_commit(root: Path, commit: str) -> Tree:
    tree: Tree = {}
    for entry in os.fsdecode(git(root, "ls-tree", "-r", "-z", commit)).split("\0")[:-1]:
        description, path = entry.split("\t", 1)
        mode, _kind, blob = description.split()
        tree[path] = File(git(root, "cat-file", "blob", blob), mode)
    return tree


def read_folder(root: Path, folder: str) -> Tree:
    paths = sorted((root / folder).rglob("*.py"))
    return {
        path.relative_to(root).as_posix(): File(os.fsencode(path.readlink()), LINK)
        if path.is_symlink()
        else File(path.read_bytes())
        for path in paths
    }


def write_folder(tree: Tree, folder: Path) -> None:
    for path, file in tree.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.mode == LINK:
            target.unlink(missing_ok=True)
            target.symlink_to(file.data.decode())
        else:
            target.write_bytes(file.data)
            target.chmod(0o755 if file.mode == "100755" else 0o644)


def check_folder(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ReleaseError(f"{folder} exists and is not an empty folder")


def check_branch(root: Path, branch: str, title: str) -> str | None:
    """Return the branch's last commit, None if there is none; raises ReleaseError if a release must not go there."""
    git(root, "check-ref-format", "--branch", branch)
    if f"branch refs/heads/{branch}" in git_line(root, "worktree", "list", "--porcelain").splitlines():
        raise ReleaseError(f"branch {branch} is checked out, and a release never touches a working tree")
    tip = git_line(root, "for-each-ref", "--format=%(objectname)", f"refs/heads/{branch}")
    if tip and git_line(root, "log", "-1", "--format=%s", tip) != title:
        raise ReleaseError(f"branch {branch} holds something else: its last commit is not titled {title!r}")
    return tip or None


def write_tree(tree: Tree, root: Path) -> str:
    """Return the id of the tree in git's store, made in an index of its own."""
    blobs = {path: git_line(root, "hash-object", "-w", "--stdin", stdin=file.data) for path, file in tree.items()}
    entries = "".join(f"{file.mode} {blobs[path]}\t{path}\0" for path, file in tree.items())
    with tempfile.TemporaryDirectory() as scratch:
        index = {"GIT_INDEX_FILE": str(Path(scratch, "index"))}
        git(root, "update-index", "-z", "--index-info", stdin=os.fsencode(entries), env=index)
        return git_line(root, "write-tree", env=index)


def write_branch(tree: Tree, root: Path, branch: str, tip: str | None, title: str, source: str) -> bool:
    """Add a commit with this tree to the branch, signed and dated like its source; False where the tip has the tree."""
    tree_id = write_tree(tree, root)
    if tip and git_line(root, "rev-parse", f"{tip}^{{tree}}") == tree_id:
        return False
    names = [f"GIT_{who}_{what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL", "DATE")]
    people = git_line(root, "log", "-1", "--date=raw", "--format=%an%x00%ae%x00%ad%x00%cn%x00%ce%x00%cd", source)
    env = dict(zip(names, people.split("\0"), strict=True))
    parents = ("-p", tip) if tip else ()
    commit = git_line(root, "commit-tree", tree_id, *parents, "-m", title, "-m", f"Cut from {source}.", env=env)
    git(root, "update-ref", f"refs/heads/{branch}", commit, tip or "0" * len(commit))
    return True


# The commands.


def release(root: Path, name: str, to: Path | None, branch: str | None, grader: str = "") -> int:
    title, cut = RELEASES[name]
    source = head_commit(root)
    if to is not None:
        check_folder(to)
    tip = check_branch(root, branch, title) if branch is not None else None
    whole = read_commit(root, source)
    tree = cut(whole)
    if grader:
        tree = dict(sorted((tree | {WORKFLOW: File(pinned(whole[ITS_SOURCE].data, grader))}).items()))
    if to is None and branch is None:
        print(f"{name}: {len(tree)} files; nothing is in the way")
    if to is not None:
        write_folder(tree, to)
        print(f"{name}: {len(tree)} files in {to}")
    if branch is not None:
        is_new = write_branch(tree, root, branch, tip, title, source)
        print(f"{name}: branch {branch} {'has a new commit' if is_new else 'is up to date'}")
    return 0


def generated(root: Path) -> tuple[Tree, Tree]:
    """Return what is made of the operators' solutions, and what there is: links in the reference, and the stubs.

    The package exports the same in both.
    """
    tree, package = read_folder(root, "assignment"), f"{REFERENCE}__init__.py"
    found = read_folder(root, REFERENCE)
    found = {path: file for path, file in found.items() if file.mode == LINK or path == package}
    exported = {path: File(exports().encode()) for path in found if path == package}
    return links(tree) | stubs(tree) | exported, found | read_folder(root, STUBS)


def write_stubs(root: Path) -> int:
    made, found = generated(root)
    for path in found.keys() - made.keys():
        (root / path).unlink()
        print(f"stubs: {path} is of no operator of the course, and removed")
    write_folder(made, root)
    print(f"stubs: {sum(path.startswith(STUBS) for path in made)} files in {STUBS}")
    return 0


def check_stubs(root: Path) -> int:
    expected, found = generated(root)
    different = [path for path in sorted(expected | found) if expected.get(path) != found.get(path)]
    for path in different:
        old, new = (tree.get(path, File(b"")).data.decode().splitlines() for tree in (found, expected))
        print("\n".join(difflib.unified_diff(old, new, path, f"{path}, generated", n=1, lineterm="")))
    if different:
        print(f"stubs: {len(different)} differ from the solutions; run python -m assignment.release stubs")
    return 1 if different else 0


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="python -m assignment.release", description="Cut releases for students.")
    commands = parser.add_subparsers(dest="command", required=True)
    both = "write cs336_kernels/ from the solutions, and the reference's links to them"
    stubs = commands.add_parser("stubs", help=both)
    stubs.add_argument("--check", action="store_true", help="only say how they differ, and exit 1 if they do")
    for name, help_text in (("student", "cut the student release"), ("solution", "cut it with the reference in it")):
        command = commands.add_parser(name, help=help_text)
        command.add_argument("--to", type=Path, metavar="DIR", help="write it into a new or empty folder")
        command.add_argument("--branch", metavar="NAME", help="add it as a commit to a branch of its own")
        grader = "with a workflow: this release grades each push"
        command.add_argument(
            "--check", action="store_true", help="only say whether it can be cut, and what is in the way"
        )
        command.add_argument("--grader", metavar="OWNER/NAME@COMMIT", default="", help=grader)
    options = parser.parse_args(arguments)
    if not options.check and options.command != "stubs" and options.to is None and options.branch is None:
        commands.choices[options.command].error("say where it goes: --to DIR, --branch NAME or both; or --check")
    try:
        if options.command == "stubs":
            return check_stubs(root) if options.check else write_stubs(root)
        checks.declared()
        if options.check:
            return release(root, options.command, None, None, options.grader)
        return release(root, options.command, options.to, options.branch, options.grader)
    except (ReleaseError, CourseError, in_course.StaleText) as error:
        print(f"release: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
