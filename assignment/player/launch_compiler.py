"""Compiles the launches of programs, as they were recorded, for GPUs that are not present."""

import torch
import triton

from assignment.compiling import build, compiled_constants, launches
from assignment.compiling.kernel import Compiled
from assignment.compiling.targets import ASKS, TARGETS
from assignment.protocol import program as programs
from assignment.protocol.program import HostLine, Launch, Program
from assignment.protocol.replies import Loaded
from assignment.protocol.requests import Compile, Load
from assignment.protocol.said import Said, joined

from . import arguments
from .kernel_builder import Kernels, Refused
from .lines import told
from .storages import CannotFollow, check_fits

MAX_KERNELS = 300  # in a reply
MAX_TOLD = 4
SIMULATED = "h100"  # that the simulator stands for
Answer = tuple[Loaded | Compiled, list[torch.Tensor]]


def answer(request: Load | Compile, tensors: list[torch.Tensor]) -> Answer:
    """Answer a request: the sources of a submission, which are not needed, or programs to compile."""
    if isinstance(request, Load):
        return Loaded(), []
    kernels = Kernels(request.sources, triton.jit)
    played = [programs.read(data) for data in tensors]
    kernels.add(request.kernels)
    noted: dict[str, list[launches.CompiledLaunch]] = {}
    stopped, refused = dict[str, Said](), dict[str, Said]()
    for name, number in request.programs.items():
        with launches.recorded(TARGETS[name]) as noted[name]:
            try:
                _launch_all(played[number], kernels, request.sources)
            except launches.LaunchRefused as error:
                refused[name] = error.said
            except (CannotFollow, Refused) as error:
                stopped[name] = Said(f"{type(error).__name__}: {error}", error.said.places)
    together = [launch for of_target in noted.values() for launch in of_target]
    built = build.kernels(together, is_brief=True, processes=request.processes)[:MAX_KERNELS]
    return Compiled(tuple(built), stopped, refused, _differing(request, noted)), []


def _differing(request: Compile, noted: dict[str, list[launches.CompiledLaunch]]) -> tuple[Said, ...]:
    """Return where kernels had other constants as they were played than as they are compiled.

    A file that asks which GPU it is compiled for is compared for the one that the simulator stands for: it may be
    another program on others, of which staff are told.
    """
    found: dict[tuple[str, int], str] = {}
    asking = {path for path, text in request.sources.items() if ASKS in text}
    for name, of_target in noted.items():
        played = request.constants.get(str(request.programs[name]), {"seen": [], "of": []})
        for launch in of_target:
            compiled = build.constants_of(launch)
            is_known = compiled and 0 <= launch.played < len(played["of"])
            seen = played["seen"][played["of"][launch.played]] if is_known else {}
            for path, line, how in compiled_constants.differing(seen, compiled):
                if name == SIMULATED or path not in asking:
                    found.setdefault((path, line), f"{how}, for {TARGETS[name].title}")
    places = {(path, line): told(request.sources, HostLine(path, line, "its kernel")) for path, line in found}
    return tuple(joined([how, places[at]]) for at, how in found.items())[:MAX_TOLD]


def _launch_all(program: Program, kernels: Kernels, sources: dict[str, str]) -> None:
    """Record all launches of a program; raises CannotFollow, Refused, LaunchRefused."""
    memory = _Memory(program)
    for number, launch in enumerate(program.launches()):
        try:
            _launch(memory, kernels, launch, number)
        except launches.LaunchRefused as error:
            raise launches.LaunchRefused(error.said, told(sources, program.lines[launch.line])) from error


def _launch(memory: "_Memory", kernels: Kernels, launch: Launch, number: int) -> None:
    """Record one launch, with every configuration of an autotuned kernel."""
    given, options = launch.arguments, launch.options
    tuning = next(launches.tunings) if launch.configurations else -1
    for configuration in launch.configurations or [{}]:
        values = {**given, **{name: value for name, value in configuration.items() if name in given}}
        settings = {**options, **{name: value for name, value in configuration.items() if name not in given}}
        decoded = {name: arguments.of_launch(v, memory.view, kernels) for name, v in {**values, **settings}.items()}
        kernel = kernels[launch.kernel]  # which may use the fields of its arguments
        described = ", ".join(f"{name}={value}" for name, value in configuration.items())
        is_played = (values, settings) == (given, options)
        with launches.tuned(described, tuning, number if is_played else -1):
            kernel[tuple(launch.grid)](**decoded)


class _Memory:
    """Memory of the right size, without contents: only its address and dtype count."""

    def __init__(self, program: Program) -> None:
        self._views = program.views
        self._held: dict[int, torch.UntypedStorage] = {}
        self._sizes: dict[int, int] = {}
        for number, dtype, offset, sizes, strides in self._views:
            last = sum((n - 1) * stride for n, stride in zip(sizes, strides, strict=True)) if all(sizes) else 0
            nbytes = (offset + last + 1) * getattr(torch, dtype).itemsize
            self._sizes[number] = max(self._sizes.get(number, 0), nbytes)

    def view(self, number: int) -> torch.Tensor:
        storage, dtype, offset, sizes, strides = view = self._views[number]
        if storage not in self._held:
            self._held[storage] = torch.UntypedStorage(self._sizes[storage])
        check_fits(view, self._held[storage].nbytes())
        return torch.empty(0, dtype=getattr(torch, dtype)).set_(self._held[storage], offset, sizes, strides)
