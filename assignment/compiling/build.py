"""Compiles recorded launches, each distinct one once, in several processes."""

import contextlib
import functools
import hashlib
import json
import linecache
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from assignment.protocol.messages import Value
from assignment.protocol.said import Said
from assignment.simulator.constants import Seen
from assignment.simulator.triton_private import (
    ASTSource,
    CompiledKernel,
    GPUTarget,
    JITFunction,
    compile,
    get_cache_manager,
    ir,
    make_backend,
)

from . import compiled_constants, compiler_pool, machine_code, products, refusals
from .kernel import MAX_ITEMS, MAX_TEXT, Kernel, read
from .launches import CompiledLaunch, stand_for

HERE = Path(__file__).parent
# what is told of a kernel, and its constants by place
CompilationResult = tuple[dict[str, Value], dict[str, list[str]]]
# not SIGKILL, which want of memory ends in
CRASHES = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE")
_known: dict[tuple, dict[str, Value]] = {}  # what came of a launch, by its key
_constants: dict[tuple, dict[str, list[str]]] = {}  # what the compiler saw of it, if it went through it
_kept: list[JITFunction] = []  # kernels whose ids are in the keys


def kernels(launches: Sequence[CompiledLaunch], is_brief: bool = False, processes: int | None = None) -> list[Kernel]:
    """Return the compiled kernels of the launches, each distinct one once, in their order.

    If brief, an autotuned kernel is compiled until a configuration fits, and the line that spills
    is not looked for.
    """
    alike = {(launch.key, launch.tuning): launch for launch in launches}
    rounds = list(_rounds(list(alike.values()))) if is_brief else [list(alike.values())]
    found: list[Kernel] = []
    fitting: set[tuple[str, int]] = set()
    for some in rounds:
        open_ones = [launch for launch in some if (launch.target.name, launch.tuning) not in fitting]
        compiled = _compiled(open_ones, is_brief, processes or compiler_pool.processes())
        found += compiled
        fitting |= {(kernel.target, kernel.tuning) for kernel in compiled if kernel.tuning >= 0 and kernel.fits}
    return found


def _rounds(launches: list[CompiledLaunch]) -> Iterator[list[CompiledLaunch]]:
    """Yield untuned launches with the first configuration of tuned ones, then each next one."""
    turns: dict[int, list[CompiledLaunch]] = {}
    counts: dict[tuple, int] = {}
    for launch in launches:
        tuned = (launch.target.name, launch.tuning, id(launch.kernel))
        turn = counts.get(tuned, 0) if launch.tuning >= 0 else 0
        counts[tuned] = turn + 1
        turns.setdefault(turn, []).append(launch)
    yield from (turns[turn] for turn in sorted(turns))


def _compiled(launches: list[CompiledLaunch], is_brief: bool, n: int) -> list[Kernel]:
    new = list({launch.key: launch for launch in launches if launch.key not in _known}.values())
    compile_one = functools.partial(_one, is_brief)
    for launch, result in zip(new, compiler_pool.results(compile_one, new, _lost, n), strict=True):
        _known[launch.key], _constants[launch.key] = result
        _kept.append(launch.kernel)
    found = (read({**_known[launch.key], "config": launch.config, "tuning": launch.tuning}) for launch in launches)
    return [kernel for kernel in found if kernel]


def constants_of(launch: CompiledLaunch) -> dict[str, list[str]]:
    """Return the constants of a launch that was compiled; nothing where they are unknown."""
    return _constants.get(launch.key, {})


def _lost(launch: CompiledLaunch, how: str) -> CompilationResult:
    is_crash = how in CRASHES and not has_assembly(launch)
    return {**_nothing(launch), "error": f"the compiler itself crashed ({how})", "is_crash": is_crash}, {}


def has_assembly(launch: CompiledLaunch) -> bool:
    """Return whether the kernel's file has inline assembly: errors there are its author's."""
    return any("inline_asm" in line for line in linecache.getlines(launch.kernel.fn.__code__.co_filename))


def _nothing(launch: CompiledLaunch) -> dict[str, Value]:
    return Kernel(
        launch.kernel.__name__,
        launch.kernel.fn.__code__.co_filename,
        refusals.first_line(launch.kernel),
        launch.target.name,
        constants=constants(launch)[:MAX_TEXT],
        warps=launch.options.num_warps,
        stages=launch.options.num_stages,
        form=launch.form,
    ).as_json()


def constants(launch: CompiledLaunch) -> str:
    """Return "IS_CAUSAL=True, Q_TILE_SIZE=64"."""
    values = {path[0]: value for path, value in launch.constants.items() if len(path) == 1}
    own = [
        (param.name, values[i]) for i, param in enumerate(launch.kernel.params) if param.is_constexpr and i in values
    ]
    return ", ".join(f"{name}={getattr(value, '__name__', value)}" for name, value in own)


def _one(is_brief: bool, launch: CompiledLaunch) -> CompilationResult:
    """Compile a launch, in a process where no other compilation runs."""
    if Kernel("", "", 0, launch.target.name, warps=launch.options.num_warps).excess:
        return _nothing(launch), {}
    stand_for(launch.target)  # a kernel may ask for it
    seen: Seen = {}
    told = _told(is_brief, launch, seen)
    return told, {where: sorted(values) for where, values in seen.items()}


def _told(is_brief: bool, launch: CompiledLaunch, seen: Seen) -> dict[str, Value]:
    """Compile a launch; constants that the compiler sees are added to `seen`."""
    with tempfile.TemporaryFile("w+") as said, _quiet(said.fileno()):
        try:
            with compiled_constants.noted(seen):
                compiled = assembled(launch)
                if is_brief and not seen:  # Triton has kept what another process had compiled
                    _go_through(launch)
        except Exception as error:
            said.seek(0)
            here = refusals.at(launch.kernel.fn.__code__.co_filename, refusals.first_line(launch.kernel))
            why = refusals.described(error, said.read(), here)
            is_skipped = isinstance(error, refusals.SKIPPED)
            is_crash = refusals.is_crash(error) and not has_assembly(launch)
            if not is_crash:  # what comes after the line that is refused was not seen
                seen.clear()
            lines: list[Value] = [asdict(place) for place in why.places]
            told: dict[str, Value] = {"error": why.text[:MAX_TEXT], "error_at": lines}
            return {**_nothing(launch), **told, "is_skipped": is_skipped, "is_crash": is_crash}
        return {**_nothing(launch), **figures(launch, compiled, is_brief)}


@contextlib.contextmanager
def _quiet(errors_to: int) -> Iterator[None]:
    """Discard what the compiler prints, and redirect its errors to a file."""
    before = [os.dup(1), os.dup(2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(errors_to, 2)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for number, saved in enumerate(before, 1):
            os.dup2(saved, number)
            os.close(saved)
        os.close(nowhere)


def assembled(launch: CompiledLaunch) -> CompiledKernel:
    """Return Triton's CompiledKernel."""
    target = GPUTarget("cuda", launch.target.capability, 32)
    return compile(_source(launch), target=target, options=launch.options.__dict__)


def _go_through(launch: CompiledLaunch) -> None:
    """Have Triton's front end go through the kernel, for the constants that it sees."""
    target = GPUTarget("cuda", launch.target.capability, 32)
    backend, context = make_backend(target), ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    functions = backend.get_codegen_implementation(launch.options), backend.get_module_map()
    _source(launch).make_ir(target, launch.options, *functions, context)


def _source(launch: CompiledLaunch) -> ASTSource:
    return ASTSource(launch.kernel, launch.signature, launch.constants, launch.attributes)


def figures(launch: CompiledLaunch, compiled: CompiledKernel, is_brief: bool) -> dict[str, Value]:
    """Return the resources and instructions of a compiled kernel, cached beside Triton's files."""
    cache, name = (get_cache_manager(compiled.hash), f"{_version()}{'-brief' if is_brief else ''}.json")
    if path := cache.get_file(name):
        with contextlib.suppress(OSError, ValueError):
            return json.loads(Path(path).read_text(encoding="utf-8"))
    found = _figures(launch, compiled, is_brief)
    cache.put(json.dumps(found), name, binary=False)
    return found


@functools.cache
def _version() -> str:
    """Return a hash of this package's code."""
    code = b"".join(path.read_bytes() for path in sorted(HERE.glob("*.py")))
    return hashlib.sha256(code).hexdigest()[:16]


def _figures(launch: CompiledLaunch, compiled: CompiledKernel, is_brief: bool) -> dict[str, Value]:
    asm, metadata = compiled.asm, compiled.metadata
    registers, spills = machine_code.registers_and_spills(asm["cubin"])
    by_place = products.instructions_by_place(asm["ttgir"])
    remarks = products.remarks(asm["ttir"], asm["ttgir"], launch.target, metadata.num_warps)
    return {
        "warps": metadata.num_warps,
        "stages": metadata.num_stages,
        "shared": metadata.shared,
        "tensor_memory": getattr(metadata, "tmem_size", None) or 0,
        "registers": registers,
        "spills": spills,
        "spilled_at": _spilled_at(launch, asm["cubin"]) if spills and not is_brief else "",
        "instructions": sorted(set().union(*by_place.values())) if by_place else [],
        "remarks": [f"{text}\n{_at(launch, place)}"[:MAX_TEXT] for place, text in remarks][:MAX_ITEMS],
    }


def _spilled_at(launch: CompiledLaunch, cubin: bytes) -> str:
    with tempfile.TemporaryDirectory() as folder:
        place = machine_code.most_spilled(machine_code.disassembled(cubin, Path(folder)))
    return str(_at(launch, place)).strip() if place else ""


def _at(launch: CompiledLaunch, place: tuple[str, int]) -> Said:
    """Return the line in refusals.at()'s form, in the kernel's folder.

    Triton's cache may name the file of an identical kernel elsewhere.
    """
    beside = Path(launch.kernel.fn.__code__.co_filename).parent / Path(place[0]).name
    return refusals.at(str(beside) if beside.is_file() else place[0], place[1])
