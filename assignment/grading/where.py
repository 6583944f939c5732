"""Where a student finds what a check is about: the file to open, the function, the section of the handout."""

from dataclasses import dataclass

from assignment.grading.checks import SPEED, Check

FLASH = "cs336_kernels/flash_attention.py"
FILES = {  # by problem; the stubs say the same
    "weighted_sum": ("cs336_kernels/weighted_sum.py", "handout/weighted_sum.md"),
    "rmsnorm": ("cs336_kernels/rmsnorm.py", "handout/rmsnorm.md"),
    "flash_forward_pytorch": (FLASH, "handout/flash_attention.md#forward-in-pytorch"),
    "flash_forward_triton": (FLASH, "handout/flash_attention.md#forward-in-triton"),
    "flash_backward_pytorch": (FLASH, "handout/flash_attention.md#backward-in-pytorch"),
    "flash_backward_triton": (FLASH, "handout/flash_attention.md#backward-in-triton"),
}
SPEED_SECTION = "handout/grading.md#speed"


@dataclass(frozen=True)
class Place:
    file: str
    function: str
    section: str

    def __str__(self) -> str:
        """As in a stub's message."""
        return f"{self.file}: {self.function}, {self.section}"


def place(check: Check) -> Place:
    function = check.function
    if check.problem != SPEED:
        file, section = FILES[check.problem]
        return Place(file, function, section)
    problem = max((name for name in FILES if function.startswith(name)), key=len, default="weighted_sum")
    return Place(FILES[problem][0], function, SPEED_SECTION)


def problems_in(files: set[str]) -> set[str]:
    """The problems that a change of these files concerns; all where one of them belongs to none."""
    standard = {file for file, _ in FILES.values()}
    return {problem for problem, (file, _) in FILES.items() if file in files or files - standard}
