"""A class on a Ray cluster: every submission has one answer, whatever becomes of the nodes."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from assignment.bank.run.raylets import Raylets, raylets
from assignment.classroom import batch, cluster, results
from assignment.classroom.cluster import Needs
from assignment.classroom.handed_in import Handed
from assignment.sandbox import rungs
from assignment.submission import Submission, UnusableSubmission

ROOT = Path(__file__).resolve().parents[2]
GIB = 1 << 30

ray = pytest.importorskip("ray", reason="Ray is not installed: uv sync --extra classroom")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


class Scripted(batch.Grader):
    """Does what a submission's name says, and notes each time in a folder that its settings name."""

    def __init__(self, settings: results.ClassSettings) -> None:
        self._notes = Path(settings.only[0])

    def start(self) -> None:
        if (self._notes / "unfit").exists():
            (self._notes / "unfit" / cluster._node()).touch()
            if cluster._node() in (self._notes / "unfit" / "nodes").read_text():
                raise batch.Lost("no such sandbox")

    def grade(self, job, limit_s):
        name = job.handed.path.name
        before = len(list(self._notes.glob(f"{name} *")))
        (self._notes / f"{name} {before} {time.time_ns()} {cluster._node()}").touch()
        action = name.partition("-")[0]
        if action == "sleep":
            time.sleep(1.0)
        if action == "lost" or (action == "once" and not before):
            raise batch.Lost("the grader ended")
        if action == "ends":
            os._exit(1)  # the node's own process, not the grader's
        return {"report": {"score": float(len(job.submission.files))}, "log": name}


def jobs(*names: str) -> list[batch.Job]:
    return [batch.Job(Handed(name, Path(name)), Submission({"a.py": b""}), name) for name in names]


@pytest.fixture(scope="module")
def two() -> Iterator[Raylets]:
    """Two nodes on this machine beside the head, and this process as their driver."""
    with raylets(2) as made, cluster.connected(made.address):
        yield made


def answers(folder: Path, *names: str, tell=lambda line: None) -> dict[str, batch.Answer]:
    settings = results.ClassSettings(0, only=(str(folder),))
    given = list(cluster.grade_all(jobs(*names), settings, Needs(), 60.0, tell, Scripted))
    assert sorted(job.key for job, _ in given) == sorted(names)
    return {job.key: answer for job, answer in given}


@pytest.mark.slow
def test_every_job_has_one_answer_whatever_becomes_of_the_others(two, tmp_path):
    names = ["a", "lost", "once", "ends", "b", "c"]
    given = answers(tmp_path, *names)
    assert {name for name, answer in given.items() if isinstance(answer, Exception)} == {"lost", "ends"}
    assert given["once"] == {"report": {"score": 1.0}, "log": "once"}
    began = sorted((int(path.name.split()[2]), path.name.split()[0]) for path in tmp_path.iterdir())
    assert sorted(name for _, name in began) == sorted([*names, "lost", "once", "ends"])
    assert {name for _, name in began[-3:]} == {"lost", "once", "ends"}  # alone, when the others are through


@pytest.mark.slow
def test_what_was_on_a_lost_node_is_graded_elsewhere(two, tmp_path):
    names = [f"sleep-{number}" for number in range(10)]
    told: list[str] = []
    settings = results.ClassSettings(0, only=(str(tmp_path),))
    given = cluster.grade_all(jobs(*names), settings, Needs(), 60.0, told.append, Scripted)
    done = [next(given) for _ in range(4)]
    two.kill(two.nodes[-1])
    try:
        done += given
        assert sorted(job.key for job, _ in done) == sorted(names)
        assert not [answer for _, answer in done if isinstance(answer, Exception)]
        assert len(told) == 1, "one submission was on the node"
        assert "its node was lost" in told[0]
        assert len(list(tmp_path.iterdir())) == len(names) + 1
    finally:
        two.add()


@pytest.mark.slow
def test_a_node_on_which_no_grader_starts_gets_no_more(two, tmp_path):
    (tmp_path / "unfit").mkdir()
    alive = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    (tmp_path / "unfit" / "nodes").write_text(alive[0])
    told: list[str] = []
    names = [f"sleep-{number}" for number in range(8)]
    given = answers(tmp_path, *names, tell=told.append)
    assert not [answer for answer in given.values() if isinstance(answer, Exception)]
    assert {path.name.split()[3] for path in tmp_path.glob("sleep-*")} == {alive[1]}
    assert [line for line in told if "no such sandbox" in line]
    (tmp_path / "unfit" / "nodes").write_text(" ".join(alive))
    with pytest.raises(UnusableSubmission, match=r"a grader starts on no node; .*no such sandbox"):
        answers(tmp_path, "a")


def listed() -> list[str]:
    return sorted(path.name for path in Path.cwd().iterdir())


@pytest.mark.slow
def test_nodes_get_what_grades_and_nothing_else(two):
    """Not results that lie in the checkout, which hold the seed"""
    assert ray.get(ray.remote(listed).options(num_cpus=1).remote()) == sorted(cluster.SHIPPED)


@pytest.mark.slow
def test_no_cluster_is_a_sentence(two):
    with pytest.raises(UnusableSubmission, match="--ray"), cluster.connected("192.0.2.1:1"):
        pass


# without a cluster


def test_room():
    node = {"CPU": 16.0, "memory": 20.0 * GIB}
    assert Needs(memory=3 * GIB).fit(node) == 6
    assert Needs(memory=GIB).fit(node) == 16
    assert Needs(gpus=1).fit(node) == 0
    assert Needs(gpus=1, memory=3 * GIB).fit({**node, "GPU": 4.0}) == 4
    assert Needs().fit({}) == 0


def test_a_node_without_a_sandbox_is_refused_unless_it_is_asked_for(monkeypatch):
    monkeypatch.setattr(rungs, "problem", lambda rung, device: "" if rung == rungs.RLIMITS else "is missing")
    with pytest.raises(rungs.Unavailable, match="is missing"):
        cluster._check_sandbox("auto", "cpu")
    with pytest.raises(rungs.Unavailable, match="landlock: is missing"):
        cluster._check_sandbox("landlock", "cpu")
    cluster._check_sandbox("rlimits", "cpu")


def timeless(report: dict) -> dict:
    """A report but for what each grade has of its own."""
    about = {key: value for key, value in report["classroom"].items() if key != "graded"}
    return {**report, "seconds": 0.0, "cpu_s": 0.0, "classroom": about}


@pytest.mark.slow
def test_a_cluster_s_reports_are_this_machine_s(tmp_path):
    for name, package in (("ada", ROOT / "assignment/reference"), ("bo", ROOT)):
        files = (package / "cs336_kernels").glob("*.py")
        Submission({f"cs336_kernels/{path.name}": path.read_bytes() for path in files}).stage(tmp_path / "class" / name)
    command = [sys.executable, "-m", "assignment.classroom", "grade", str(tmp_path / "class")]
    command += ["--only", "weighted_sum", "--device", "cpu"]
    here, there = tmp_path / "here", tmp_path / "there"
    subprocess.run([*command, "--to", here, "--jobs", "1"], cwd=ROOT, check=True, timeout=300)
    for name in ("reports", "logs"):
        (there / name).mkdir(parents=True)
    (there / results.SETTINGS).write_bytes((here / results.SETTINGS).read_bytes())
    done = subprocess.run(
        [*command, "--to", there, "--ray", "local"], cwd=ROOT, check=True, timeout=300, capture_output=True, text=True
    )
    assert "Ray: 1 nodes" in done.stdout
    for name in ("ada", "bo"):
        mine, theirs = (json.loads((to / "reports" / f"{name}.json").read_text()) for to in (here, there))
        assert timeless(mine) == timeless(theirs)
        assert (here / "logs" / f"{name}.txt").read_text() == (there / "logs" / f"{name}.txt").read_text()
