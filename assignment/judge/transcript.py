"""A recorded program in words: what host code did, step by step, each with its line."""

from typing import Any

MAX_STEPS = 40
MAX_ARGUMENTS = 12  # of a launch, on a line


def lines(program: dict[str, Any]) -> list[str]:
    """Return each operation and launch behind its number and below its line, without the middle of a long program."""
    told = [(text, _line(program, step)) for step in program["steps"] if (text := _step(program, *step))]
    numbered = [[f"{n:>4} {place}", f"     {text}"] for n, (text, place) in enumerate(told, 1)]
    left_out = [[f"     … {len(told) - MAX_STEPS} steps more …"]]
    if len(told) > MAX_STEPS:
        numbered = [*numbered[: MAX_STEPS // 2], *left_out, *numbered[-MAX_STEPS // 2 :]]
    return [line for lines in numbered for line in lines]


def _line(program: dict[str, Any], step: list[Any]) -> str:
    return program["lines"][step[-1]] if step[0] != "inputs" else ""


def _step(program: dict[str, Any], name: str, *rest: Any) -> str:
    """Return what a step does; nothing for those that only keep the books."""
    if name == "op":
        operation, args, kwargs, views, _ = rest
        given = [_value(program, value) for value in [*args, *kwargs.values()]]
        made = ", ".join(_view(program, number) for number in views)
        return f"{program['operations'][operation]}({', '.join(given)}) → {made}"
    if name == "launch":
        return _launch(program, *rest)
    if name == "read":
        return f"{rest[0]} reads a value, a stand-in's"
    if name in ("constant", "foreign"):
        return f"t{rest[0]} is memory that no operation made"
    return f"the inputs are {', '.join(_view(program, number) for number in rest[0])}" if name == "inputs" else ""


def _launch(program: dict[str, Any], kernel: int, grid: list[int], arguments: Any, options: Any, *_: Any) -> str:
    names = program.get("kernel names", {})
    given = [f"{name}={_value(program, value)}" for name, value in {**arguments, **options}.items()]
    shown = given if len(given) <= MAX_ARGUMENTS else [*given[:MAX_ARGUMENTS], "…"]
    return f"launch {names.get(kernel, f'kernel {kernel}')}[{', '.join(map(str, grid))}]({', '.join(shown)})"


def _value(program: dict[str, Any], value: Any) -> str:
    if isinstance(value, dict):
        if "t" in value:
            return _view(program, value["t"])
        return str(next(iter(value.values()), ""))
    return f"[{', '.join(_value(program, item) for item in value)}]" if isinstance(value, list) else str(value)


def _view(program: dict[str, Any], number: int) -> str:
    """Return a view in words: "t3 float32 (64, 128)"; storages have the numbers, and views of one share it."""
    storage, dtype, _, sizes, _ = program["views"][number]
    return f"t{storage} {dtype} ({', '.join(map(str, sizes))})"
