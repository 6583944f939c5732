"""The compiler's messages about a kernel that it refuses, at the student's line."""

import gc
import re
from pathlib import Path

import triton

from assignment.protocol import said
from assignment.protocol.said import Said, joined
from assignment.simulator.triton_private import (
    COMPILERS_NO_BLOCK_POINTERS,
    NO_BLOCK_POINTERS,
    CompilationError,
    CompileTimeAssertionFailure,
    JITCallable,
    JITFunction,
    PTXASError,
)

LIBRARY = Path(triton.__file__).parent
# Triton's tuner then takes another configuration
SKIPPED = (CompileTimeAssertionFailure, PTXASError)
DIAGNOSTIC = re.compile(r'^(?:loc\()?"?([^"\n:]+\.py)"?:(\d+):\d+\)?: error: (.+)$', re.MULTILINE)
FROM_PTXAS = re.compile(r"^ptxas.*?(?:error|fatal)\s*: (.+)$", re.MULTILINE)
REPR = re.compile(r"""^\w+(?:Error|Exception)\((['"])(.*)\1\)$""", re.DOTALL)
MAX_CHAIN = 50


def is_crash(error: BaseException) -> bool:
    """Return whether a pass of the compiler failed on code that its front end accepted."""
    return isinstance(error, RuntimeError) and "PassManager::run failed" in str(error)


def described(error: BaseException, printed: str, kernel: Said) -> Said:
    """Return the compiler's message, and a line "  at cs336_kernels/rmsnorm.py:42: source line".

    `printed` is what the compiler wrote to its standard error, `kernel` the line to name if it
    names none.
    """
    if isinstance(error, CompilationError):
        return _of_the_front_end(error)
    if diagnostics := [match for match in DIAGNOSTIC.finditer(printed) if not _is_library(match[1])]:
        path, line, message = diagnostics[0].groups()
        return joined([message, at(path, int(line))])
    if isinstance(error, PTXASError) and (refused := FROM_PTXAS.findall(f"{error}")):
        return joined([f"NVIDIA's assembler refuses it: {refused[0]}", kernel])
    lines = [line for line in printed.splitlines() if "error:" in line]
    told = [line.partition("error:")[2].strip() for line in lines] or [f"{type(error).__name__}: {error}"]
    return joined([told[0].strip(), kernel])


def _of_the_front_end(error: CompilationError) -> Said:
    """Return the innermost message, at the innermost line that is not Triton's own."""
    chain: list[CompilationError] = [error]
    while isinstance(chain[-1].__cause__, CompilationError) and len(chain) < MAX_CHAIN:
        chain.append(chain[-1].__cause__)
    message = next((link.error_message for link in reversed(chain) if link.error_message), None)
    message = str(message or (chain[-1].__cause__ or "refused"))
    if match := REPR.match(message):
        message = match[2].replace("\\n", "\n").replace("\\'", "'")
    if isinstance(chain[-1], CompileTimeAssertionFailure):
        message = f"static_assert failed{': ' if chain[-1].error_message else ''}{chain[-1].error_message or ''}"
    if message.startswith(COMPILERS_NO_BLOCK_POINTERS):
        message = NO_BLOCK_POINTERS.format("make_block_ptr")
    places = [place for link in chain if (place := _place(link)) and not _is_library(place[0])]
    return joined([message, *(at(*place) for place in places[-1:])])


def _place(error: CompilationError) -> tuple[str, int] | None:
    """Return where the function stands whose compilation failed, and the line in it."""
    line = getattr(error.node, "lineno", None)
    for function in (obj for obj in gc.get_objects() if issubclass(type(obj), JITCallable)):
        if line is not None and function.src == error.src:
            return function.fn.__code__.co_filename, first_line(function) + line - 1
    return None


def first_line(function: JITFunction) -> int:
    """Return the line of a kernel's `def`, in its file."""
    decorators = next((i for i, line in enumerate(function.raw_src) if line.lstrip().startswith("def ")), 0)
    return function.starting_line_number + decorators


def at(path: str, line: int) -> Said:
    """Return "  at /…/rmsnorm.py:42: x = tl.load(…)"."""
    return said.at(path, line, "", source(path, line))


def source(path: str, line: int) -> str:
    """Return a line of a file, without its indent; "" if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8").split("\n")[line - 1].strip()
    except (OSError, IndexError, UnicodeDecodeError):
        return ""


def _is_library(path: str) -> bool:
    return Path(path).is_relative_to(LIBRARY)
