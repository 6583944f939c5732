"""Sandboxes to put submissions into, and what tells afterwards whether anything of them stayed."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from assignment.judge.pair import RecorderAndPlayer
from assignment.judge.replies import Ok
from assignment.protocol.requests import Call
from assignment.sandbox import rungs, stage
from assignment.sandbox.worker_client import Worker
from assignment.submission import Submission
from tests.operators import called

ROOT = Path(__file__).resolve().parents[3]
MODULES = "os, resource, socket, subprocess, sys, tempfile, threading, time, torch"
TRY = """
import ctypes, fcntl
libc = ctypes.CDLL(None, use_errno=True)

def checked(value):
    if value < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return value

def tried(attempts):
    worked = []
    for attempt in attempts:
        try:
            eval(attempt, {**globals(), "libc": libc, "checked": checked, "fcntl": fcntl})
            worked.append(1.0)
        except (OSError, ValueError):
            worked.append(0.0)
    return worked
"""


def rungs_that_work(names: tuple[str, ...], device: str = "cpu") -> list[Any]:
    """The rungs as parameters; those beside the best that works here are for thorough runs."""
    reasons = {name: rungs.problem(name, device) for name in names}
    best = next((name for name, why in reasons.items() if not why), "")
    slow = {name: [] if name == best else [pytest.mark.slow] for name in names}
    return [
        pytest.param(name, marks=[pytest.mark.skipif(bool(why), reason=why), *slow[name]])
        for name, why in reasons.items()
    ]


@dataclass
class Box:
    """A warm pair, or a worker with a GPU, for one submission after the other."""

    rung: str
    stage: stage.Stage
    asked: RecorderAndPlayer | Worker

    @property
    def worker(self) -> Worker:
        """The one that runs the submission."""
        return self.asked.recorder if isinstance(self.asked, RecorderAndPlayer) else self.asked

    def load(self, code: str) -> None:
        """Take a submission whose weighted_sum_forward(x) has this body."""
        body = textwrap.indent(textwrap.dedent(code), "    ")
        text = f"import {MODULES}\n\ndef weighted_sum_forward(x):\n{body}\n"
        self.asked.restart()
        self.stage.replace(Submission({"cs336_kernels/weighted_sum.py": text.encode()}))

    def call(self) -> torch.Tensor:
        reply, results = self.asked.ask(Call(**called("weighted_sum_forward"), options={}), [torch.ones(3)])
        assert isinstance(reply, Ok) or (isinstance(reply, dict) and reply["status"] == "ok"), reply
        return results[0]

    def run(self, code: str) -> torch.Tensor:
        self.load(code)
        return self.call()

    def that_work(self, attempts: dict[str, str]) -> set[str]:
        """The names of the expressions that raise nothing when the submission evaluates them.

        Each must do no harm where a sandbox lets it through: this is run on people's machines.
        """
        result = self.run(f"{TRY}\nreturn torch.tensor(tried({list(attempts.values())!r}))")
        return {name for name, worked in zip(attempts, result.tolist(), strict=True) if worked}


@contextlib.contextmanager
def open_box(rung: str, device: str) -> Iterator[Box]:
    held = stage.Stage(Submission({"cs336_kernels/weighted_sum.py": b""}), device)
    asked = RecorderAndPlayer(held, rung) if device == "cpu" else Worker(held, device, rung)
    try:
        yield Box(rung, held, asked)
    finally:
        asked.close()
        held.close()


def process_ids(word: str) -> list[int]:
    """Of the processes with this word in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += [int(path.parent.name)] if word.encode() in path.read_bytes() else []
    return found


@contextlib.contextmanager
def socket_on_loopback():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def grade(tmp_path: Path, submission: Path, *arguments: str) -> tuple[subprocess.CompletedProcess, dict[str, Any]]:
    """A grade with a folder for temporary files of its own, in which nothing may be left."""
    temporary, file = tmp_path / "temporary", tmp_path / "report.json"
    temporary.mkdir(exist_ok=True)
    command = [sys.executable, str(ROOT / "grade.py"), str(submission), "--json", str(file), *arguments]
    env = os.environ | {"TMPDIR": str(temporary)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
    assert not process_ids(str(temporary))
    assert list(temporary.iterdir()) == []
    return done, json.loads(file.read_text()) if file.exists() else {}
