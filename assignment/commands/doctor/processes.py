"""Programs of ours in processes of their own, which may crash or hang."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FIRST_KERNEL = Path(__file__).with_name("first_kernel.py")
TIMEOUT_S = 180  # PyTorch from a cold disk


def python(*arguments: str) -> tuple[str, str]:
    """Return what Python prints, with the repository first on its path as for grade.py; and why it failed, or ""."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    with tempfile.TemporaryDirectory() as compiled:
        env = {**os.environ, "PYTHONPATH": path, "TRITON_CACHE_DIR": compiled}
        command = [sys.executable, *arguments]
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            return "", f"no answer within {TIMEOUT_S} s"
    printed, said = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    if done.returncode < 0:
        return printed, f"Python died of {signal.Signals(-done.returncode).name}"
    lines = [line for line in (printed + said).splitlines() if line.strip() and not line.startswith("note: ")]
    end = lines[-1] if lines else f"Python ended with status {done.returncode}"
    return printed, end if done.returncode else ""


def first_kernel(*by: str) -> str:
    """Return why a small kernel fails, on the GPU or under the module before it in the command; "" if it works."""
    return python(*by, str(FIRST_KERNEL))[1]
