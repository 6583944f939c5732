"""Makes a Python of the same packages that begins with `taken_away`, and so does each that it starts."""

import sys
import sysconfig
from pathlib import Path

FIRST = Path(__file__).with_name("taken_away.py")


def make(folder: Path) -> Path:
    """Return the program, in an environment of three files."""
    base = Path(sys._base_executable)  # type: ignore[attr-defined]
    packages = folder / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    program = folder / "bin" / "python"
    for path in (packages, program.parent):
        path.mkdir(parents=True)
    program.symlink_to(base)
    (folder / "pyvenv.cfg").write_text(f"home = {base.parent}\n")
    first = f"import runpy; runpy.run_path({str(FIRST)!r})"
    (packages / "off_linux.pth").write_text(f"{sysconfig.get_path('purelib')}\n{first}\n")
    return program
