"""Kernels that Triton's compiler takes, and kernels that it refuses: the files of verdicts/.

    python -m assignment.tests.constructs.verdicts compiler    # or simulator: prints one JSON object

The object has for each kernel null if it is accepted, or the message and the line that is to blame.

A kernel is (x_ptr, y_ptr, n, f, one, N: tl.constexpr) with 64 elements of float32 and int64, n = 3, f = 0.5, one = 1,
N = 16; two programs run. called.txt has what kernels call. In the other files a paragraph is a body with gaps, `{}`,
and a line for each kernel, `- `, which fills them: ` | ` stands between what two gaps get, ` ; ` between two lines,
`>` for an indentation. Behind a kernel stands, after two spaces each,

    -> 3: words         that it is refused: at this line of its body (0: of what it calls), and in these words
    [laxer: why]        the simulator takes it all the same, as it runs a kernel one way at a time
    [stricter: why]     the simulator alone refuses it
    [elsewhere: why]    the compiler names another line
    [says: words]       in these words, too, the simulator refuses it
    [finds 2: words]    what the simulator finds when it runs, at this line of the body and in these words

and `[laxer before 3.7: why]`, or `since`, for some versions of Triton alone. The lines are those of Triton 3.9.
"""

import contextlib
import importlib
import importlib.metadata
import io
import json
import re
import sys
import tempfile
import textwrap
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "verdicts"
MODULE = "kernels_of_verdicts"
NEWEST = (3, 9)
VERSION = tuple(int(part) for part in importlib.metadata.version("triton").split(".")[:2])
Verdict = tuple[str, int, str, bool] | None  # a message, the line of the body, or 0, its text, whether it has to run


@dataclass(frozen=True)
class Kernel:
    """A body; the line that is refused, if one is, and in which words; how the simulator differs with this Triton."""

    body: str
    line: int | None = None
    words: str = ""
    mark: str = ""
    says: str = ""
    finds: tuple[int, str] | None = None


def kernels() -> dict[str, Kernel]:
    """Return the kernels of all files, by their bodies written on one line."""
    files = [file for file in sorted(FOLDER.glob("*.txt")) if file.stem != "called"]
    found: dict[str, Kernel] = {}
    for paragraph in "\n\n".join(file.read_text(encoding="utf-8").strip() for file in files).split("\n\n"):
        lines = paragraph.splitlines()
        body = "\n".join(line for line in lines if not line.startswith(("- ", "# ")))
        for line in lines:
            if line.startswith("- "):
                kernel = _kernel(body, *line.removeprefix("- ").split("  "))
                name = re.sub(
                    r"\n((?:    )*)", lambda at: " ; " + ">" * (len(at[1]) // 4) + " " * bool(at[1]), kernel.body
                )
                if name in found:
                    raise ValueError(f"twice in the table: {name}")
                found[name] = kernel
    return found


def _kernel(body: str, parts: str, *notes: str) -> Kernel:
    for part in parts.split(" | "):
        before, _, after = body.partition("{}")
        margin = re.sub(r"\S.*", "", before.rpartition("\n")[2])
        lines = [re.sub(r"^>+ ", lambda at: "    " * (len(at[0]) - 1), line) for line in part.split(" ; ")]
        body = before + f"\n{margin}".join(lines) + after
    found: dict[str, Any] = {}
    for note in notes:
        if refused := re.fullmatch(r"-> (\d)(?:: (.*))?", note):
            found |= {"line": int(refused[1]), "words": refused[2] or ""}
        elif finds := re.fullmatch(r"\[finds (\d): (.*)\]", note):
            found["finds"] = int(finds[1]), finds[2]
        elif says := re.fullmatch(r"\[says: (.*)\]", note):
            found["says"] = says[1]
        elif marked := re.fullmatch(r"\[(laxer|stricter|elsewhere)(?: (before|since) 3\.(\d+))?: .*\]", note):
            if not marked[2] or (marked[2] == "since") is ((3, int(marked[3])) <= VERSION):
                found["mark"] = marked[1]
        else:
            raise ValueError(f"{parts}: what is {note!r}?")
    return Kernel(body, **found)


def written(folder: Path) -> Any:
    """Import a module with kernels kernel_0, kernel_1 …"""
    code = [(FOLDER / "called.txt").read_text(encoding="utf-8")]
    for i, kernel in enumerate(kernels().values()):
        head = f"@triton.jit\ndef kernel_{i}(x_ptr, y_ptr, n, f, one, N: tl.constexpr):\n"
        code.append(head + textwrap.indent(kernel.body, "    "))
    (folder / f"{MODULE}.py").write_text("\n\n".join(code) + "\n", encoding="utf-8")
    sys.path.insert(0, str(folder))
    return importlib.import_module(MODULE)


def simulated(folder: Path) -> Callable[[str], Verdict]:
    """Return what runs a kernel in the simulator."""
    from assignment.simulator import install

    install()
    import torch

    from assignment.simulator.faults import MemoryFault

    module = written(folder)

    def run(name: str) -> Verdict:
        kernel = getattr(module, name)
        above = kernel.fn.__code__.co_firstlineno + 1  # of @triton.jit, and def
        try:
            kernel[(2,)](torch.zeros(64), torch.zeros(64, dtype=torch.int64), 3, 0.5, 1, N=16)
        except MemoryFault as fault:
            line = re.search(rf":(\d+) in {name}: ", f"{fault}")
            return f"{fault}", int(line[1]) - above if line else 0, "", True
        except Exception as error:
            own = [frame for frame in traceback.extract_tb(error.__traceback__) if MODULE in frame.filename]
            is_here = bool(own) and own[-1].name == name
            return f"{error}", (own[-1].lineno or 0) - above if is_here else 0, own[-1].line or "" if own else "", False
        return None

    return run


def compiled(folder: Path) -> Callable[[str], Verdict]:
    """Return what compiles a kernel."""
    module = written(folder)

    def run(name: str) -> Verdict:
        kernel = getattr(module, name)
        try:
            made_ir(kernel, {"x_ptr": "*fp32", "y_ptr": "*i64", "n": "i32", "f": "fp32"}, {"one": 1, "N": 16})
        except Exception as error:
            return _innermost(error, kernel.src, Path(module.__file__).read_text(encoding="utf-8"))
        return None

    return run


def made_ir(kernel: Any, types: dict[str, str], constants: dict[str, Any]) -> Any:
    """Compile a kernel for an H100 as far as it can be refused for how it is written."""
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, make_backend

    target = GPUTarget("cuda", 90, 32)
    backend: Any = make_backend(target)
    options = backend.parse_options({})
    signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
    source = ASTSource(kernel, signature, constants)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    functions = backend.get_codegen_implementation(options), backend.get_module_map()
    source.hash()  # for which Triton goes through the kernel, too
    return source.make_ir(target, options, *functions, context)


def _innermost(error: Exception, kernel: str, module: str) -> Verdict:
    """Return the innermost message, and the innermost line that is not Triton's own."""
    message, line, text = f"{error}", 0, ""
    link: Any = error
    while link is not None:
        node = getattr(link, "node", None)
        if node is not None and link.src in module:
            number = getattr(node, "lineno", 1)
            line, text = number - 1 if link.src == kernel else 0, link.src.splitlines()[number - 1].strip()
        message = getattr(link, "error_message", None) or message
        link = link.__cause__
    return message, line, text, False


def main() -> None:
    run_with = {"simulator": simulated, "compiler": compiled}[sys.argv[1]]
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        run = run_with(Path(folder))
        verdicts = {name: run(f"kernel_{i}") for i, name in enumerate(kernels())}
    print(json.dumps(verdicts))


if __name__ == "__main__":
    main()
