"""Grades a class on a Ray cluster: `grade … --ray [ADDRESS]`.

A task is a submission. The node that it comes to keeps a grader loaded, in a process of its own as batch.py's, and the
answer goes back to the driver, which alone writes results. Ray itself repeats nothing: what was lost with its node
is graded elsewhere, what has ended its own grader once more, alone, and a node on which no grader starts gets no more.
"""

import logging
import os
import platform
import queue
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assignment.classroom import COMMAND
from assignment.classroom.batch import MEMORY_OF_A_JOB, ROOT, Answer, Grader, Job, Lost, lost_once_more
from assignment.classroom.handed_in import Handed
from assignment.classroom.results import ClassSettings
from assignment.sandbox import rungs
from assignment.submission import Submission, UnusableSubmission

SHIPPED = ("assignment", "course.toml", "cs336_kernels", "handout", "tests", "grade.py", "handout.md", "pyproject.toml")
# All but these, as git's rules for ignoring say it: results that lie in the checkout hold the seed.
NOT_SHIPPED = ["/*", "!/.", *(f"!/{name}" for name in SHIPPED), "__pycache__"]
NODES = 3  # a submission that has been on so many when they were lost is tried alone
STARTS = 3  # a node on which so many graders did not start gets no more
Tell = Callable[[str], None]


@dataclass(frozen=True)
class NoGrader:
    """A node's answer where no grader starts."""

    node: str
    why: str


@dataclass(frozen=True)
class Needs:
    """What a grade takes of a node; with a GPU, all of one, so that one submission at a time is timed on it."""

    gpus: int = 0
    cpus: int = 1
    memory: int = MEMORY_OF_A_JOB  # bytes

    def options(self) -> dict[str, int]:
        """Return them as options of a task."""
        return {"num_cpus": self.cpus, "num_gpus": self.gpus, "memory": self.memory}

    def fit(self, resources: dict[str, float]) -> int:
        """Return how many grades have room at once on a node with these resources."""
        needed = {"CPU": self.cpus, "GPU": self.gpus, "memory": self.memory}
        return min(int(resources.get(name, 0) // amount) for name, amount in needed.items() if amount)


@contextmanager
def connected(address: str) -> Iterator[None]:
    """Have this process be the driver of a cluster.

    Raises:
        UnusableSubmission: Ray is not installed, or there is no cluster.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")  # a task without a GPU sees none
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "(?s).")  # our line on a lost node, not its log
    try:
        import ray
    except ImportError as error:
        raise UnusableSubmission(f"--ray: Ray is not installed; run `{COMMAND} grade …`") from error
    try:
        ray.init(
            address,
            runtime_env={"working_dir": str(ROOT), "excludes": NOT_SHIPPED},
            log_to_driver=False,
            logging_level=logging.ERROR,
            include_dashboard=False if address == "local" else None,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        message = str(error).strip().splitlines()[0]
        raise UnusableSubmission(f"--ray {address}: {message}; start a cluster by `ray start --head`") from error
    try:
        yield
    finally:
        ray.shutdown()


def needed(device: str) -> Needs:
    """Return what a grade takes on this cluster: "auto" is a GPU if a node has one."""
    import ray

    has_gpu = ray.cluster_resources().get("GPU", 0) >= 1
    return Needs(gpus=int(device == "cuda" or (device == "auto" and has_gpu)))


def room(needs: Needs) -> tuple[int, int]:
    """Return how many nodes of the cluster can grade, and how many submissions at once."""
    import ray

    fits = [needs.fit(node["Resources"]) for node in ray.nodes() if node["Alive"]]
    return sum(fit > 0 for fit in fits), sum(fits)


# On a node. A task comes to a process that has run others before it, whose grader is loaded.

_graders: dict[ClassSettings, Grader] = {}


def graded(
    path: str, files: dict[str, bytes], settings: ClassSettings, limit_s: float, device: str, new: type[Grader]
) -> Answer | NoGrader:
    """Return the report and the log of a submission; what kept it from one; or why no grader starts on this node."""
    grader = _graders.setdefault(settings, new(settings))
    try:
        _check_sandbox(settings.sandbox, device)
        grader.start()
    except (Lost, OSError, rungs.Unavailable) as error:
        return NoGrader(_node(), f"{platform.node()}: {error}")
    try:
        return grader.grade(Job(Handed("", Path(path)), Submission(files), ""), limit_s)
    except Exception as error:  # an answer, as it is on one machine; what is raised here is no submission's fault
        return error


def _check_sandbox(asked: str, device: str) -> None:
    """Raise Unavailable where only the rung without protection works, and nobody has asked for it.

    It leaves a submission the network, and so the cluster.
    """
    rung = rungs.choose(asked, device)
    if asked == rungs.AUTO and rung in rungs.UNSAFE:
        raise rungs.Unavailable(rungs.announcement(rung, device).strip())


def _node() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


# In the driver.


class Tasks:
    """The submissions that are with the cluster."""

    def __init__(self, settings: ClassSettings, needs: Needs, limit_s: float, tell: Tell, new: type[Grader]) -> None:
        import ray

        self._task = ray.remote(graded)
        self._needs = {"max_retries": 0, **needs.options()}
        self._rest = (settings, limit_s, "cuda" if needs.gpus else "cpu", new)
        self._done: queue.SimpleQueue[tuple[Job, Any]] = queue.SimpleQueue()
        self._tell = tell
        self._nodes_lost: Counter[int] = Counter()  # by job
        self._starts_failed: Counter[str] = Counter()  # by node

    def submit(self, job: Job) -> None:
        """Have a job graded where there is room."""
        without = [node for node, times in self._starts_failed.items() if times >= STARTS]
        where = {"label_selector": {"ray.io/node-id": f"!in({','.join(without)})"}} if without else {}
        task = self._task.options(**self._needs, **where)
        reference = task.remote(str(job.handed.path.absolute()), job.submission.files, *self._rest)
        reference.future().add_done_callback(lambda future: self._done.put((job, future)))

    def next(self) -> tuple[Job, Answer]:
        """Return the next job that is through, with its answer; what a node has taken with it is submitted again.

        Raises:
            UnusableSubmission: a grader starts on no node, or the checkout and its packages do not work on one.
        """
        from ray.exceptions import NodeDiedError, ObjectLostError, RayTaskError, RuntimeEnvSetupError

        while True:
            job, future = self._done.get()
            error = future.exception()
            if isinstance(error, NodeDiedError | ObjectLostError) and self._nodes_lost[id(job)] < NODES:
                self._nodes_lost[id(job)] += 1
                self._tell(f"{job.handed.name}: its node was lost; it is graded elsewhere")
            elif error is not None:
                said = f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}"
                if isinstance(error, RayTaskError | RuntimeEnvSetupError):
                    raise UnusableSubmission(f"--ray: a node cannot run the grader: {said}") from error
                return job, Lost(said)
            elif isinstance(answer := future.result(), NoGrader):
                self._exclude(answer)
            else:
                return job, answer
            self.submit(job)

    def _exclude(self, answer: NoGrader) -> None:
        import ray

        self._starts_failed[answer.node] += 1
        if self._starts_failed[answer.node] != STARTS:
            return
        self._tell(f"no grader starts on {answer.why}")
        alive = {node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")}
        if not any(self._starts_failed[node] < STARTS for node in alive):
            raise UnusableSubmission(f"--ray: a grader starts on no node; {answer.why}")


def grade_all(
    jobs: list[Job], settings: ClassSettings, needs: Needs, limit_s: float, tell: Tell, new: type[Grader] = Grader
) -> Iterator[tuple[Job, Answer]]:
    """Yield each job with its answer, or with what kept it from one, as batch.grade_all does."""
    tasks = Tasks(settings, needs, limit_s, tell, new)
    for job in jobs:
        tasks.submit(job)

    def alone(job: Job) -> tuple[Job, Answer]:
        tasks.submit(job)
        return tasks.next()

    yield from lost_once_more((tasks.next() for _ in jobs), alone)
