"""GitHub's workflows: each action at one commit, and each script run as GitHub runs it, with what would need a network
replaced by stubs."""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from assignment import release
from assignment.handout import notebook, website
from assignment.tests.test_github import GRADER, ROOT

FOLDER = ROOT / "assignment" / "classroom" / "github"
WORKFLOWS = sorted(FOLDER.glob("*.yml"))
SCRIPTS = [
    ROOT / ".ci" / "run",
    *(ROOT / "assignment/classroom/autograder" / name for name in ("setup.sh", "run_autograder")),
]
PINNED = re.compile(r"([\w-]+/[\w-]+)@([0-9a-f]{40}) # (v\d+(?:\.\d+\.\d+)?)")


def steps(workflow: Path) -> list[dict[str, Any]]:
    known = yaml.safe_load(release.pinned(workflow.read_bytes(), GRADER))
    return [step for job in known["jobs"].values() for step in job["steps"]]


def bash(script: str, *options: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a script as a step with `shell: bash` does."""
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", *options, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, **more)


def test_every_action_is_at_one_commit_which_a_comment_names():
    assert [path.name for path in WORKFLOWS] == ["grade.yml", "mac.yml", "pages.yml"]
    found: dict[str, set[tuple[str, str]]] = {}
    for path in WORKFLOWS:
        for used in re.findall(r"uses: *(.*)", path.read_text()):
            pin = PINNED.fullmatch(used)
            assert pin, f"{path.name}: {used}"
            found.setdefault(pin[1], set()).add((pin[2], pin[3]))
    assert all(len(pins) == 1 for pins in found.values()), found


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_is_whole(path):
    known = yaml.safe_load(path.read_text())
    assert known["permissions"]["contents"] == "read"
    is_by_hand = path.name == "mac.yml"
    assert {"workflow_dispatch", *([] if is_by_hand else ["push"])} == set(known[True])  # YAML's `on`
    for job in known["jobs"].values():
        assert job["runs-on"] == ("macos-15" if is_by_hand else "ubuntu-24.04")
        assert "timeout-minutes" in job
    for step in steps(path):
        assert ("uses" in step) != ("run" in step)
        assert "${{" not in step.get("run", "")  # no text of an event is part of a script
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False
        if "run" in step:
            done = bash(step["run"], "-n")
            assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_bash(path):
    done = bash(path.read_text(), "-n")
    assert (done.returncode, done.stderr) == (0, "")


UV = f"""#!/usr/bin/env bash
echo "uv $*" >>"$SAID"
case $1 in
    sync) ln -s {sys.prefix} .venv ;;
    run) while [ "$1" != python ]; do shift; done; shift; exec {sys.executable} "$@" ;;
    *) exit 9 ;;
esac
"""
PYTHON3 = f"""#!/usr/bin/env bash
echo "python3 $*" >>"$SAID"
[ "$1 $2" = "-m venv" ] || exec {sys.executable} "$@"
mkdir -p "$3/bin"
printf '#!/bin/sh\\necho "pip $*" >>"$SAID"\\ncp {{uv}} "%s/bin/uv"\\n' "$3" >"$3/bin/pip"
chmod +x "$3/bin/pip"
"""


@pytest.fixture
def machine(tmp_path):
    """The environment of a runner, whose python3 and pip install a uv that installs nothing."""
    (tmp_path / "bin").mkdir()
    stubs = {"uv-stub": UV, "python3": PYTHON3.replace("{uv}", str(tmp_path / "bin" / "uv-stub"))}
    for name, text in stubs.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "temp").mkdir()
    return {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "HOME": str(tmp_path), "SAID": str(tmp_path / "said"),
        "RUNNER_TEMP": str(tmp_path / "temp"), "REPORT": str(tmp_path / "report"),
        "GITHUB_OUTPUT": str(tmp_path / "output"), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
    }  # fmt: skip


def cloned(to: Path) -> Path:
    """Return a folder with the repository's files as they lie here, as a checkout gives them."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        if os.path.lexists(ROOT / name):
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name, follow_symlinks=False)
    return to


@pytest.mark.skipif(not shutil.which("uv"), reason="needs uv")
def test_uv_prints_nothing_before_a_command(tmp_path):
    """Its settings are ours, and no package is needed; the first command makes the environment, and says so"""
    ours = (ROOT / "pyproject.toml").read_text().partition("[tool.uv]\n")[2].partition("\n\n")[0]
    project = '[project]\nname = "settings"\nversion = "0"\nrequires-python = ">=3.11"\n[tool.uv]\n'
    (tmp_path / "pyproject.toml").write_text(project + ours)
    command = ["uv", "run", "--offline", "--python", sys.executable, "python", "-c", "print('graded')"]
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    for _ in range(2):
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("graded\n", "")


def group(name: str) -> set[str]:
    """Return the distributions that a group of pyproject.toml brings, with what they need."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    waiting, found = [one for one in groups[name] if isinstance(one, str)], set[str]()
    while waiting:
        needed = waiting.pop()
        own = re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", needed, maxsplit=1)[0]).lower()
        if "extra ==" in needed or own in found:
            continue
        found.add(own)
        try:
            waiting += importlib.metadata.requires(own) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # of another system
    return found


HIDES = """
import json, os, sys
hidden = set(json.load(open(os.environ["HIDDEN"])))
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"{name} is hidden: the group does not bring it")
sys.meta_path.insert(0, Finder())
"""


@pytest.fixture
def with_the_pages_group_alone(machine, tmp_path):
    """A runner on which nothing can be imported but what the group of the pages brings: no PyTorch, no Triton."""
    brought = group("pages")
    owners = importlib.metadata.packages_distributions()
    hidden = [
        name for name, dists in owners.items() if not {re.sub(r"[-_.]+", "-", d).lower() for d in dists} & brought
    ]
    assert {"torch", "triton", "numpy", "pytest"} <= {*hidden}
    (tmp_path / "hides").mkdir()
    (tmp_path / "hides" / "sitecustomize.py").write_text(HIDES)
    (tmp_path / "hidden.json").write_text(json.dumps(hidden))
    return machine | {"PYTHONPATH": str(tmp_path / "hides"), "HIDDEN": str(tmp_path / "hidden.json")}


def test_the_handout_is_published_without_pytorch(with_the_pages_group_alone, tmp_path):
    """By the workflow's own script, in a clone, with what the group brings alone"""
    clone = cloned(tmp_path / "clone")
    (script,) = (step["run"] for step in steps(FOLDER / "pages.yml") if "run" in step)
    done = bash(script, cwd=clone, env=with_the_pages_group_alone)
    assert done.returncode == 0, done.stderr
    (uploaded,) = (step["with"]["path"] for step in steps(FOLDER / "pages.yml") if "upload" in step.get("uses", ""))
    made = {path.name for path in (clone / uploaded).rglob("*")}
    assert {"index.html", notebook.NOTEBOOK, *(f"{page.stem}.html" for page in website.pages()[1:])} <= made
    said = Path(with_the_pages_group_alone["SAID"]).read_text().splitlines()
    assert said[1:] == [
        "pip install --quiet uv", "uv run --quiet --only-group pages python -m assignment.handout --to site",
    ]  # fmt: skip


def test_what_the_group_does_not_bring_is_hidden(with_the_pages_group_alone):
    done = bash('python3 -c "import torch"', env=with_the_pages_group_alone)
    assert "torch is hidden" in done.stderr


def test_the_pages_follow_all_that_they_are_made_of():
    known = yaml.safe_load((FOLDER / "pages.yml").read_text())
    paths = known[True]["push"]["paths"]
    for path in ("course.toml", "handout.md", "handout/**", "assignment/handout/**"):
        assert path in paths
        assert (ROOT / path.removesuffix("/**")).exists()


def test_the_grader_is_installed_and_asked(machine, tmp_path):
    """All scripts in their order, each as the one before has left the machine"""
    workflow = yaml.safe_load(release.pinned((FOLDER / "grade.yml").read_bytes(), GRADER))
    (job,) = workflow["jobs"].values()
    own, grader = (step["with"]["path"] for step in job["steps"] if "checkout@" in step.get("uses", ""))
    (tmp_path / own).mkdir()
    cloned(tmp_path / grader)
    scripts = [step["run"] for step in job["steps"] if "run" in step]
    cwd = tmp_path / job["defaults"]["run"]["working-directory"]
    done = [bash(script, cwd=cwd, env=machine) for script in scripts]
    assert [one.returncode for one in done] == [0, 2]  # nothing was handed in
    assert [one.stdout + one.stderr for one in done] == ["", ""]
    said = Path(machine["SAID"]).read_text().splitlines()
    assert said[1:3] == ["pip install --quiet uv", "uv sync --quiet --no-default-groups"]
    assert "holds no cs336_kernels/*.py" in (tmp_path / "summary").read_text()
    (kept,) = (step["with"]["path"] for step in job["steps"] if "upload-artifact@" in step.get("uses", ""))
    assert (tmp_path / kept).resolve() == Path(machine["REPORT"])


def test_a_mac_grades_what_is_kept(machine, tmp_path):
    """The scripts in their order; the last one compares, which takes minutes and is left to test_kept_triton.py"""
    clone = cloned(tmp_path / "clone")
    *first, last = [step["run"] for step in steps(FOLDER / "mac.yml") if "run" in step]
    assert last.endswith("python -m assignment.bank kept --jobs 3")
    install = bash(first[0], cwd=clone, env=machine)
    assert (install.returncode, install.stderr) == (0, "")
    done = bash(last.replace("--jobs 3", "--help"), cwd=clone, env=machine)
    assert "bank/kept.json" in done.stdout, done.stderr
