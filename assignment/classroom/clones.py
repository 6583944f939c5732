"""Clones: what a commit of a git repository holds, read without running anything that the repository configures."""

import datetime
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from assignment.submission import MAX_BYTES, Submission, UnusableSubmission, checked, in_package, loose, place_of

GIT_S = 60.0  # for one command


def _git(repository: Path, *command: str) -> bytes:
    """Return what a command of git prints; raises UnusableSubmission."""
    git = shutil.which("git")
    if git is None:
        raise UnusableSubmission("git is not installed; install it, or hand over plain folders")
    settings = ("core.fsmonitor=false", "core.hooksPath=/dev/null", "log.showSignature=false", "protocol.allow=never")
    guards = [word for setting in settings for word in ("-c", setting)]
    alone = os.environ | {"GIT_CEILING_DIRECTORIES": str(repository.resolve().parent)}  # no repository around it
    try:
        done = subprocess.run(
            [git, "--no-pager", *guards, "-C", str(repository), *command], capture_output=True, timeout=GIT_S, env=alone
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnusableSubmission(f"{repository}: git cannot read it: {type(error).__name__}") from error
    if done.returncode:
        raise UnusableSubmission(f"{repository}: git: {done.stderr.decode(errors='replace').strip()[:300]}")
    return done.stdout


def revision(repository: Path, tag: str, before: datetime.datetime | None) -> tuple[str, datetime.datetime]:
    """Return the commit to be read, and its time; raises UnusableSubmission where there is none, or no such time."""
    which = ["--before", before.isoformat()] if before else []
    start = f"refs/tags/{tag}" if tag else "HEAD"
    said = _git(repository, "log", "-1", "--format=%H %cI", *which, "--end-of-options", start)
    if not said.strip():
        raise UnusableSubmission(f"{repository}: no commit before {before}; read another, or ask for a push")
    commit, _, when = said.decode().strip().partition(" ")
    try:
        return commit, datetime.datetime.fromisoformat(when)
    except ValueError as error:
        raise UnusableSubmission(f"{repository}: commit {commit[:12]} has no time that can be read") from error


def at_revision(repository: Path, commit: str) -> Submission:
    """Return the package's files as a commit has them, or the files alone at its top; raises UnusableSubmission."""
    packages: dict[str, list[tuple[str, str]]] = {}  # the blobs of each folder that holds a package
    alone: dict[str, str] = {}
    for name, blob in _sources(repository, commit):
        if place := place_of(name):
            packages.setdefault(place[0], []).append((place[1], blob))
        elif "/" not in name:
            alone[name] = blob
    chosen = dict(in_package(repository, packages)) or alone
    files = {name: _git(repository, "cat-file", "blob", blob) for name, blob in chosen.items()}
    return loose(repository, files) if files and not packages else checked(repository, files)


def _sources(repository: Path, commit: str) -> Iterator[tuple[str, str]]:
    """Yield name and blob of each Python file of a commit; raises UnusableSubmission for a large one."""
    for line in filter(None, _git(repository, "ls-tree", "-r", "-l", "-z", commit).split(b"\0")):
        about, _, name = line.partition(b"\t")
        mode, _, blob, size = about.split()
        if mode.startswith(b"100") and name.endswith(b".py"):
            if int(size) > MAX_BYTES:
                raise UnusableSubmission(f"{repository}: {name.decode(errors='replace')} holds over 1 MiB")
            yield name.decode(errors="surrogateescape"), blob.decode()
