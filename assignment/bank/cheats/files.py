"""Attacks by what is in a submission: settings of pytest and Python, shadowing modules, links, bombs, file names."""

import os
import stat
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

from assignment.bank.cheats import HARMLESS, REFUSED, ZERO, Cheat

MARK = """
import os, pathlib
for _path in ("/tmp/cheat-@TOKEN@", "@HOME@/cheat-@TOKEN@"):
    try:
        pathlib.Path(_path).write_text("ran " + __file__)
    except OSError:
        pass
"""
CONFTEST = (
    MARK
    + """
def pytest_runtest_makereport(item, call):
    call.excinfo = None
"""
)
Entries = list[tuple[str | zipfile.ZipInfo, bytes]]


def beside(name: str, content: str = MARK, title: str = "", **more: str) -> Cheat:
    """Right code, and a file that nobody must run."""
    title = title or name.replace("/", "_in_").replace(".", "_").strip("_")
    return Cheat(f"brings_{title}", "weighted_sum", "", HARMLESS, files={name: content, **more})


def zipped(more: Callable[[str], Entries]) -> Callable[[Path, dict[str, bytes], str], Path]:
    """A zip of the submission and of further entries, which are made when it is packed."""

    def pack(root: Path, files: dict[str, bytes], token: str) -> Path:
        level = 1  # a bomb of a quarter of a gigabyte is to be packed in a second
        packed = zipfile.ZipFile(root / "submission.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=level)
        with packed as archive, warnings.catch_warnings(action="ignore"):  # of names that are there twice
            for name, content in files.items():
                archive.writestr(name, content)
            for entry, content in more(token):
                archive.writestr(entry, content)
        return root / "submission.zip"

    return pack


def archive(name: str, more: Callable[[str], Entries], expected: str, evidence: str = "") -> Cheat:
    return Cheat(name, "weighted_sum", "", expected, evidence=evidence, archive=zipped(more))


def link(name: str, target: str) -> Entries:
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    return [(info, target.encode())]


def linked_folder(root: Path, files: dict[str, bytes], token: str) -> Path:
    """A folder in which a module is a link out of the submission."""
    module = root / "submission" / "cs336_kernels" / "weighted_sum.py"
    module.unlink()
    module.symlink_to(Path(__file__).resolve().parents[2] / "reference" / "cs336_kernels" / "weighted_sum.py")
    return root / "submission"


def endless_file(root: Path, files: dict[str, bytes], token: str) -> Path:
    """A folder in which a module is a device without end, and another a pipe that nobody writes to."""
    package = root / "submission" / "cs336_kernels"
    (package / "zeros.py").symlink_to("/dev/zero")
    os.mkfifo(package / "pipe.py")
    return root / "submission"


SLOW = {
    "brings_cs336_kernels_in_conftest_py",
    "many_entries",
    "deep_folders",
    "name_of_a_kilometre",
    "link_to_a_folder",
}
CHEATS = [
    beside("conftest.py", CONFTEST),
    beside("cs336_kernels/conftest.py", CONFTEST),
    beside("tests/test_weighted_sum.py", MARK + "\ndef test_forward_values():\n    pass\n"),
    beside("pytest.ini", "[pytest]\naddopts = --collect-only -p no:assignment\npython_files = nothing\n"),
    beside("pyproject.toml", "[tool.pytest.ini_options]\naddopts = '--exitfirst --collect-only'\n"),
    beside("sitecustomize.py", MARK, **{"usercustomize.py": MARK, "evil.pth": "import os; os._exit(0)\n"}),
    beside("torch.py", MARK, **{"triton.py": MARK, "json.py": MARK, "numpy/__init__.py": MARK}),
    beside("cs336_kernels/torch.py", MARK, **{"cs336_kernels/triton.py": MARK, "cs336_kernels/json.py": MARK}),
    beside("assignment/calling/requests.py", MARK, **{"assignment/__init__.py": MARK, "grade.py": MARK}),
    beside("cs336_kernels/__main__.py", MARK, **{"cs336_kernels/__pycache__/rmsnorm.cpython-311.pyc": "poison"}),
    beside("cs336_kernels/\x1b[2J\u202e\n.py", MARK, "a_name_that_a_terminal_obeys"),
    beside("cs336_kernels/--sandbox=none; touch cheat-@TOKEN@ $(id).py", MARK, "a_name_for_a_shell"),
    Cheat(
        "compile_caches_poisoned",
        "weighted_sum",
        """
places = os.environ.get("TRITON_CACHE_DIR", "."), os.path.expanduser("~/.triton/cache"), os.path.dirname(__file__)
for folder in places:
    with contextlib.suppress(OSError):
        os.makedirs(f"{folder}/__pycache__", exist_ok=True)
        for name in ("rmsnorm", "triton_forward", "__init__"):
            Path(folder, "__pycache__", f"{name}.cpython-311.pyc").write_bytes(b"poison")
            Path(folder, f"{name}.json").write_text("{}")
""",
        HARMLESS,
    ),
    archive("link_to_a_file", lambda token: link("cs336_kernels/secret.py", "/etc/passwd"), HARMLESS),
    archive("link_to_a_folder", lambda token: link("cs336_kernels/etc", "/etc"), HARMLESS),
    archive(
        "path_out_of_the_folder",
        lambda token: [
            (f"{way}cheat-{token}.py", b"") for way in ("../../", "/tmp/", "cs336_kernels/../../", "C:\\\\")
        ],
        HARMLESS,
    ),
    archive("one_file_twice", lambda token: [("cs336_kernels/rmsnorm.py", b"raise SystemExit(0)")], REFUSED, r"twice"),
    archive("zip_bomb", lambda token: [("cs336_kernels/bomb.py", b"#" * (1 << 28))], REFUSED, r"1 MiB"),
    archive("zip_bomb_beside_the_package", lambda token: [("data.bin", bytes(1 << 28))], HARMLESS),
    archive("many_entries", lambda token: [(f"a/{i}", b"") for i in range(20_000)], REFUSED, r"entries|files"),
    archive("many_modules", lambda token: [(f"cs336_kernels/m{i}.py", b"") for i in range(500)], REFUSED, r"files"),
    archive("name_of_a_kilometre", lambda token: [("cs336_kernels/" + "a" * 5000 + ".py", b"")], REFUSED, "too long"),
    archive("deep_folders", lambda token: [("cs336_kernels/" + "d/" * 300 + "m.py", b"")], REFUSED, "too long"),
    Cheat("module_is_a_link", "weighted_sum", "", ZERO, evidence=r"weighted_sum.py", archive=linked_folder),
    Cheat("module_without_an_end", "weighted_sum", "", HARMLESS, archive=endless_file),
]
