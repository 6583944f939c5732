"""What the doctor looks at, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

PYTHONS = ((3, 11), (3, 13))  # the oldest and the newest
LIBRARIES = (  # by the name that is imported; the first three have a line of their own
    *("torch", "triton", "numpy"),
    *("einops", "jaxtyping", "matplotlib", "ml_dtypes", "pytest", "rich", "safetensors"),
)


@dataclass(frozen=True)
class Library:
    """A package: its version, "" if it is not installed; why it cannot be imported, "" if it can; where it lies."""

    version: str = ""
    problem: str = ""
    file: str = ""


@dataclass(frozen=True)
class Gpu:
    """An NVIDIA GPU, its driver, and what PyTorch makes of them."""

    is_there: bool = False
    has_device: bool = False  # a driver made the files by which it is reached
    name: str = ""
    driver: str = ""  # its version
    driver_problem: str = ""  # why nvidia-smi tells nothing
    cuda: str | None = None  # the version that torch is built for, "" for none; None: not known
    problem: str = ""  # why PyTorch cannot use it
    capability: tuple[int, int] | None = None
    kernel_problem: str = ""  # why a small kernel does not run on it

    @property
    def works(self) -> bool:
        return self.capability is not None


@dataclass(frozen=True)
class Folder:
    """A folder, the bytes that are free there, and why nothing can be written to it, "" if it can."""

    path: str
    free: int = 0
    problem: str = ""


@dataclass(frozen=True)
class Facts:
    """All that the doctor looks at."""

    python: tuple[int, int, int]
    implementation: str
    executable: str
    is_projects: bool  # whether this Python is that of the environment that uv made for the project
    is_managed: bool  # whether pip refuses to install into it
    has_uv: bool
    system: str
    machine: str
    libc: tuple[str, str]
    temporary: Folder
    cache: Folder
    here: Folder
    submission: str = ""  # why there is nothing to grade
    files: int = 0  # of the submission
    libraries: dict[str, Library] = field(default_factory=dict)
    simulator: str | None = None  # why a small kernel does not run in it, "" if it does; None: not tried
    gpu: Gpu = Gpu()
    compiler: str = ""
    has_headers: bool = False  # Python's own, for C
    rungs: dict[str, str] = field(default_factory=dict)  # best first: why each does not work
    forbids_namespaces: bool = False  # Ubuntu's setting
    memory: int = 0  # bytes that are free
    jobs: int = 1
    points: float = 0.0  # of all checks that tests/ declares, but for those of speed
    speed: float = 0.0  # of those
    points_problem: str = ""
    environment: dict[str, str] = field(default_factory=dict)


def fits(facts: Facts) -> bool:
    """Whether the rest of the grader can run in this Python at all."""
    oldest, newest = PYTHONS
    return oldest <= facts.python[:2] <= newest and facts.system == "Linux"
