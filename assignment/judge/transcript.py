"""A recorded program in words: what host code did, step by step, each with its line."""

from collections.abc import Sequence

from assignment.protocol.program import Constant, Foreign, Inputs, Launch, Operation, Program, Read, Step, Value

MAX_STEPS = 40
MAX_ARGUMENTS = 12  # of a launch, on a line


def lines(program: Program, kernels: Sequence[str]) -> list[str]:
    """Return each operation and launch behind its number and below its line, without the middle of a long program.

    kernels are the names of those that steps refer to by number.
    """
    told = [(text, _line(program, step)) for step in program.steps if (text := _text(program, step, kernels))]
    numbered = [[f"{n:>4} {place}", f"     {text}"] for n, (text, place) in enumerate(told, 1)]
    left_out = [[f"     … {len(told) - MAX_STEPS} steps more …"]]
    if len(told) > MAX_STEPS:
        numbered = [*numbered[: MAX_STEPS // 2], *left_out, *numbered[-MAX_STEPS // 2 :]]
    return [line for lines in numbered for line in lines]


def _line(program: Program, step: Step) -> str:
    line = getattr(step, "line", None)
    return "" if line is None else str(program.lines[line])


def _text(program: Program, step: Step, kernels: Sequence[str]) -> str:
    """Return what a step does; nothing for those that only keep the books."""
    match step:
        case Operation(operation, args, kwargs, made):
            given = [_value(program, value) for value in [*args, *kwargs.values()]]
            views = ", ".join(_view(program, number) for number in made)
            return f"{program.operations[operation]}({', '.join(given)}) → {views}"
        case Launch():
            return _launch(program, step, kernels)
        case Read(operation):
            return f"{operation} reads a value, a stand-in's"
        case Constant(storage) | Foreign(storage):
            return f"t{storage} is memory that no operation made"
        case Inputs(views):
            return f"the inputs are {', '.join(_view(program, number) for number in views)}"
    return ""


def _launch(program: Program, launch: Launch, kernels: Sequence[str]) -> str:
    number = launch.kernel
    name = kernels[number] if number < len(kernels) else f"kernel {number}"
    given = [f"{name}={_value(program, value)}" for name, value in {**launch.arguments, **launch.options}.items()]
    shown = given if len(given) <= MAX_ARGUMENTS else [*given[:MAX_ARGUMENTS], "…"]
    return f"launch {name}[{', '.join(map(str, launch.grid))}]({', '.join(shown)})"


def _value(program: Program, value: Value) -> str:
    if isinstance(value, dict):
        if isinstance(number := value.get("t"), int):
            return _view(program, number)
        return str(next(iter(value.values()), ""))
    return f"[{', '.join(_value(program, item) for item in value)}]" if isinstance(value, list) else str(value)


def _view(program: Program, number: int) -> str:
    """Return a view in words: "t3 float32 (64, 128)"; storages have the numbers, and views of one share it."""
    view = program.views[number]
    return f"t{view.storage} {view.dtype} ({', '.join(map(str, view.sizes))})"
