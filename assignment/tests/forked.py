"""Programs of ours, run by forks of a process that has loaded PyTorch: to load it takes longer than most of them.

What they print, how they end, and what they find in sys.argv, sys.path and the environment is as if Python had been
started for them.
"""

import functools
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import types
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path


def python(
    *command: str | Path,
    cwd: Path | None = None,
    env: Mapping[str, str] = os.environ,
    timeout: float = 300,
    is_merged: bool = False,
) -> subprocess.CompletedProcess[str]:
    """What `python COMMAND…` does, COMMAND being [-W FILTER]… and then -m MODULE, -c CODE or FILE, and arguments.

    Merged, all that is printed is in stdout.
    """
    words = [str(word) for word in command]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        files = [f"/proc/{os.getpid()}/fd/{stream.fileno()}" for stream in (out, out if is_merged else err)]
        arguments = words, str(cwd or Path.cwd()), dict(env), _search_path(), files
        process = _server().Process(target=_become, args=arguments)
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(words, timeout)
        streams = [stream.read().decode() for stream in (out, err) if stream.seek(0) == 0]
    return subprocess.CompletedProcess([sys.executable, *words], process.exitcode, *streams)


@functools.cache
def _server() -> multiprocessing.context.ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    return context


@functools.cache
def _search_path() -> list[str]:
    """Where Python itself looks for modules."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    tell = [sys.executable, "-c", "import sys; print(*sys.path[1:], sep='\\n')"]
    return subprocess.run(tell, env=env, capture_output=True, text=True, check=True).stdout.splitlines()


def _become(words: Sequence[str], cwd: str, env: dict[str, str], path: list[str], files: Sequence[str]) -> None:
    for stream, file in zip((1, 2), files, strict=True):
        os.dup2(os.open(file, os.O_WRONLY | os.O_APPEND), stream)
    os.chdir(cwd)
    os.environ.clear()
    os.environ |= env
    for name in [name for name in sys.modules if name.partition(".")[0] in ("assignment", "tests")]:
        del sys.modules[name]
    words = list(words)
    warnings.resetwarnings()
    warnings._processoptions(_filters(words))  # type: ignore[attr-defined]
    kind, *sys.argv[:] = ([] if words[0] in ("-m", "-c") else ["file"]) + words
    first = str(Path(sys.argv[0]).resolve().parent) if kind == "file" else cwd
    sys.path[:] = [first, *filter(None, env.get("PYTHONPATH", "").split(os.pathsep)), *path]
    if kind == "-m":
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        code, sys.argv[0] = sys.argv[0], "-c"
        exec(compile(code, "<string>", "exec"), vars(main))
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")


def _filters(words: list[str]) -> list[str]:
    """Take the warning filters off a command."""
    taken = []
    while words[0] == "-W":
        taken.append(words[1])
        del words[:2]
    return taken
