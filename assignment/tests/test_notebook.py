"""play.ipynb: what the handout's page on Triton has, as cells that run."""

import json
import re

import pytest

from assignment import release
from assignment.handout import notebook
from assignment.tests.forked import python
from assignment.tests.pages import ROOT, blocks

PAGE = ROOT / notebook.PAGE
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
    assert code == [block.content for block in blocks(PAGE) if block.language == "python"]
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
    assert (told["nbformat"], told["cells"][0]["cell_type"]) == (4, "markdown")
