"""play.ipynb: what the handout's page on Triton has, as cells that run."""

import json
import os
import re
import subprocess
import venv

import pytest

from assignment import release
from assignment.handout import notebook
from assignment.tests.forked import python
from assignment.tests.pages import ROOT, blocks
from assignment.tests.test_release import student_release_of_this_repository

PAGE = ROOT / notebook.PAGE
COMMITTER = ("-c", "user.name=course", "-c", "user.email=course@example.org")
GRADES = "grade.py exercises --only"
AS_A_KERNEL = """
import json, linecache, sys
from pathlib import Path
for number, cell in enumerate(json.loads(Path(sys.argv[1]).read_text())["cells"]):
    if cell["cell_type"] == "code":
        source, name = "".join(cell["source"]), f"<cell {number}>"
        linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
        exec(compile(source, name, "exec"), globals())
"""


@pytest.fixture(scope="module")
def made():
    return json.loads(notebook.of_page(PAGE.read_text(encoding="utf-8")))


def test_cells_run_in_their_order_and_print_what_the_page_shows(made, tmp_path):
    (tmp_path / "play.ipynb").write_text(json.dumps(made))
    done = python("-W", "error::RuntimeWarning", "-c", AS_A_KERNEL, tmp_path / "play.ipynb", cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr
    shown = [block.content for block in blocks(PAGE) if block.language == "output"]
    assert done.stdout.rstrip("\n") == "\n".join(shown)


def test_all_of_the_page_is_in_cells(made):
    code = ["".join(cell["source"]) for cell in made["cells"] if cell["cell_type"] == "code"]
    assert code[1:] == [block.content for block in blocks(PAGE) if block.language == "python"]
    prose = "\n".join("".join(cell["source"]) for cell in made["cells"] if cell["cell_type"] == "markdown")
    assert re.findall(r"^#+ .*", prose, re.MULTILINE) == re.findall(r"^#+ .*", without_code(), re.MULTILINE)
    assert "```" not in prose
    assert len({cell["id"] for cell in made["cells"]}) == len(made["cells"])


def without_code():
    return re.sub(r"^```.*?^```$", "", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def test_links_lead_from_the_root(made):
    prose = "".join("".join(cell["source"]) for cell in made["cells"] if cell["cell_type"] == "markdown")
    linked = [address.partition("#")[0] for address in re.findall(r"\]\(([^)]+)\)", prose)]
    files = [address for address in linked if address and "://" not in address]
    assert files
    assert all((ROOT / file).is_file() for file in files), files


def test_releases_have_it():
    tree = {notebook.PAGE: release.File(PAGE.read_bytes())}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(release, "stubs", lambda _: {})
        told = json.loads(release.student_tree(tree)[notebook.NOTEBOOK].data)
    assert (told["nbformat"], told["cells"][1]["cell_type"]) == (4, "markdown")


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A student release on the branch of a repository, as a course shows it; with its notebook."""
    folder = tmp_path_factory.mktemp("published")
    release.write_folder(student_release_of_this_repository(), folder)
    for command in (
        ["init", "--quiet", "--initial-branch", "student"],
        ["add", "."],
        ["commit", "--quiet", "-m", "it"],
    ):
        subprocess.run(["git", *COMMITTER, *command], cwd=folder, check=True)
    return folder


def test_three_exercises_each_have_a_stub_and_a_cell_that_grades_it(published):
    cells = ["".join(cell["source"]) for cell in json.loads((published / "play.ipynb").read_text())["cells"]]
    assert not any("<!--" in cell for cell in cells)
    written = [i for i, cell in enumerate(cells) if cell.startswith("%%writefile ")]
    assert len(written) == 3
    for i in written:
        path, _, stub = cells[i].removeprefix("%%writefile exercises/").partition("\n")
        (function,) = re.findall(r"--only (\w+) \| cat$", cells[i + 1])
        assert f"def {function}(" in stub
        assert stub.count("@triton.jit") == 1
        compile(stub, path, "exec")
        assert (published / path).is_file()
        assert cells[i - 1].startswith(f"### `{function}`")


RUN = """
import sys
import nbclient, nbformat
book = nbformat.read(sys.argv[1], 4)
try:
    nbclient.NotebookClient(book, timeout=500).execute(cwd=sys.argv[2])
finally:
    nbformat.write(book, sys.argv[1])
"""


@pytest.mark.lengthy
def test_a_fresh_environment_clones_the_course_and_grades_right_answers(published, tmp_path):
    """nbclient runs all cells where nothing is but Python and pip; the stubs' cells hold the reference"""
    tools, fresh = tmp_path / "fresh", tmp_path / "empty"
    fresh.mkdir()
    venv.create(tools, with_pip=True)
    python = tools / "bin" / "python"
    if subprocess.run([python, "-m", "pip", "install", "--quiet", "nbclient", "ipykernel"]).returncode:
        pytest.skip("needs the network, for nbclient")
    stubs = json.loads((published / "play.ipynb").read_text())
    told = json.loads(notebook.of_page(PAGE.read_text(encoding="utf-8"), repository=str(published)))
    book = {**stubs, "cells": [told["cells"][0], *stubs["cells"][1:]]}
    for cell in book["cells"]:
        first = "".join(cell["source"]).partition("\n")[0]
        if first.startswith("%%writefile "):
            answer = ROOT / "assignment/reference" / first.removeprefix("%%writefile exercises/")
            cell["source"] = f"{first}\n{answer.read_text(encoding='utf-8')}"
    (tmp_path / "play.ipynb").write_text(json.dumps(book))
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    subprocess.run([python, "-c", RUN, tmp_path / "play.ipynb", fresh], env=env, check=True, timeout=1200)
    graded = [
        cell for cell in json.loads((tmp_path / "play.ipynb").read_text())["cells"] if GRADES in cell["source"][0]
    ]
    assert len(graded) == 3
    for cell in graded:
        said = "".join("".join(output.get("text", "")) for output in cell["outputs"])
        statuses = set(re.findall(r"^  (\S+) +[\d.]+/[\d.]+  \S", said, re.MULTILINE))
        assert statuses == {"ok"}, said
