"""What Triton's compiler and the simulator say of the kernels in language.txt, for test_language.py.

    python assignment/tests/data/language.py compiler FOLDER    # or simulator: prints one JSON object
    python assignment/tests/data/language.py simulator FOLDER NAME...    # of these kernels alone

FOLDER is where the kernels are written to, as a module. The object has for each kernel null if it is accepted, or the
message and the line that is to blame.
"""

import contextlib
import importlib
import io
import json
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

TEXT = Path(__file__).with_name("language.txt")
MODULE = "kernels_of_language"
ARGUMENTS = "x_ptr, y_ptr, n, f, one, N: tl.constexpr"
Verdict = tuple[str, str] | None  # a message and a line


def bodies() -> dict[str, str]:
    """The kernels' bodies by name."""
    blocks = TEXT.read_text(encoding="utf-8").partition("\n# Kernels\n")[2].strip().split("\n\n")
    named = [block.partition("\n") for block in blocks]
    return {first.removeprefix("# "): body for first, _, body in named}


def written(folder: Path) -> Any:
    """A module with a kernel for each body, imported."""
    helpers = TEXT.read_text(encoding="utf-8").partition("\n# Kernels\n")[0]
    kernels = [
        f"@triton.jit\ndef {name}({ARGUMENTS}):\n{textwrap.indent(body, '    ')}\n" for name, body in bodies().items()
    ]
    (folder / f"{MODULE}.py").write_text("\n\n".join([helpers, *kernels]), encoding="utf-8")
    sys.path.insert(0, str(folder))
    return importlib.import_module(MODULE)


def simulated(folder: Path) -> Callable[[str], Verdict]:
    """Runs a kernel in the simulator: two programs, with 64 elements of float32 and of int64, 3, 0.5, 1 and 16."""
    from assignment.simulator import install

    install()
    import torch

    from assignment.simulator.faults import MemoryFault

    module = written(folder)

    def run(name: str) -> Verdict:
        try:
            getattr(module, name)[(2,)](torch.zeros(64), torch.zeros(64, dtype=torch.int64), 3, 0.5, 1, N=16)
        except MemoryFault:
            return None
        except Exception as error:
            own = [frame for frame in traceback.extract_tb(error.__traceback__) if MODULE in frame.filename]
            return f"{error}", (own[-1].line or "") if own else ""
        return None

    return run


def compiled(folder: Path) -> Callable[[str], Verdict]:
    """Compiles a kernel for an H100 as far as it can be refused for how it is written."""
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, make_backend

    target, module = GPUTarget("cuda", 90, 32), written(folder)
    backend: Any = make_backend(target)
    options = backend.parse_options({})
    types = dict(
        zip(
            ["x_ptr", "y_ptr", "n", "f", "one", "N"],
            ["*fp32", "*i64", "i32", "fp32", "constexpr", "constexpr"],
            strict=True,
        )
    )

    def run(name: str) -> Verdict:
        source = ASTSource(getattr(module, name), types, {(4,): 1, (5,): 16})
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        functions = backend.get_codegen_implementation(options)
        try:
            source.hash()  # for which Triton goes through the kernel, too
            source.make_ir(target, options, functions, backend.get_module_map(), context)
        except Exception as error:
            return _message_and_line(error, module)
        return None

    return run


def _message_and_line(error: Exception, module: Any) -> tuple[str, str]:
    """The innermost message, and the innermost line that is not Triton's own."""
    own, message, line = Path(module.__file__).read_text(encoding="utf-8"), f"{error}", ""
    link: Any = error
    while link is not None:
        node = getattr(link, "node", None)
        if node is not None and link.src in own:
            line = link.src.splitlines()[getattr(node, "lineno", 1) - 1].strip()
        message = getattr(link, "error_message", None) or message
        link = link.__cause__
    return message, line


if __name__ == "__main__":
    which, where, *some = sys.argv[1:]
    run = {"simulator": simulated, "compiler": compiled}[which](Path(where))
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(io.StringIO()):
        verdicts = {name: run(name) for name in some or bodies()}
    print(json.dumps(verdicts))
