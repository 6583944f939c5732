"""Describes all kernels of a folder's modules, builds them of their text, and prints what was refused."""

import importlib
import json
import sys
from pathlib import Path

if sys.argv[1] == "simulated":
    from assignment.simulator import install

    install()

import triton
from triton.backends.compiler import GPUTarget

from assignment.compiling.targets import TARGETS
from assignment.player.kernel_builder import Kernels
from assignment.player.source import Refused
from assignment.recorder import device
from assignment.recorder.kernels import Described, is_kernel
from assignment.recorder.tape import Tape
from assignment.simulator import bodies

ROOT = Path(sys.argv[2])
sys.path.insert(0, str(ROOT))


def kernels_of(path: Path) -> list:
    bodies.forget()  # the operators of the module before, which has those of the same names
    module = importlib.import_module(path.relative_to(ROOT).with_suffix("").as_posix().replace("/", "."))
    values = [getattr(value, "fn", value) if not is_kernel(value) else value for value in vars(module).values()]
    return [value for value in values if is_kernel(value) and value.fn.__module__ == module.__name__]


def main() -> None:
    files = sorted(path for path in ROOT.rglob("*.py") if not path.name.startswith("_"))
    described, tape = Described(ROOT), Tape(f"{ROOT}/")
    device.install(tape, GPUTarget("cuda", 90, 32), device.Answers(TARGETS["h100"].properties, set()))
    with bodies.everywhere([device.OnGpu(tape)]):
        kernels = [kernel for path in files for kernel in kernels_of(path)]
    for kernel in kernels:
        described.number(kernel)
    sources = {path.relative_to(ROOT).as_posix(): path.read_bytes().decode() for path in files}
    built, refused = Kernels(sources, triton.jit), []
    built.add(json.loads(json.dumps(described.entries)))
    for number in range(len(described.entries)):
        try:
            built[number]
        except Refused as error:
            refused.append(str(error))
    print(json.dumps({"built": len(described.entries) - len(refused), "refused": refused}))


main()
