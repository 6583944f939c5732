"""The configurations of autotuned kernels: each is played once on a case of each check that has values.

On a GPU any of those left after pruning may be the fastest; the first stands for none of the others. What is left may
depend on sizes: the other cases of a check are played in a configuration that the seed draws.
"""

from collections.abc import Sequence

from assignment.judge import seeds
from assignment.protocol.program import Launch, drawn, given
from assignment.protocol.requests import Call, Gradients, Ranks

MAX_PLAYED = 16  # of a kernel; of more the seed chooses so many, at first of those that give it other values
PLAYED = (Call, Gradients, Ranks)
MAX_DRAWN = 1 << 32


def among(launches: Sequence[Launch]) -> list[str]:
    """Return what each configuration gives to the kernels of a program, as text: its options alone are not played."""
    tuned = [_given(launch) for launch in launches if launch.configurations]
    n = max(map(len, tuned), default=1)
    return [str([values[number % len(values)] for values in tuned]) for number in range(n)]


def _given(launch: Launch) -> list[str]:
    return [given(configuration, launch.arguments) for configuration in launch.configurations or ()]


def draw(seed: int, case: str) -> int:
    """Return what draws the configurations of a case that is played in one alone."""
    return seeds.number(seed, "configuration", case) % MAX_DRAWN


def others(given: Sequence[str], seed: int, case: str) -> list[int]:
    """Return the numbers of the configurations to play beside the first: of many those that give other values first."""
    n = len(given)
    if n <= MAX_PLAYED:
        return list(range(1, n))
    repeats = {number for number in range(n) if given.index(given[number]) < number}
    drawn = {number: seeds.number(seed, "configuration", f"{case} {number}") for number in range(1, n)}
    order = sorted(drawn, key=lambda number: (number in repeats, drawn[number]))
    return sorted(order[: MAX_PLAYED - 1])


def first_drawn(launches: Sequence[Launch], draws: int) -> int:
    """Return the number of the configuration that is drawn for the first autotuned kernel; 0 without one."""
    return next((drawn(draws, _given(launch)) for launch in launches if launch.is_tuned), 0)


def is_as_asked(launches: Sequence[Launch], number: int, draws: int | None = None) -> bool:
    """Return whether each launch of a program has the values of the configuration with this number, or of the drawn."""
    return all(_is_as_asked(launch, number, draws) for launch in launches if launch.configurations)


def _is_as_asked(launch: Launch, number: int, draws: int | None) -> bool:
    among = launch.configurations or [{}]
    chosen = number % len(among) if draws is None else drawn(draws, _given(launch))
    launched = {**launch.options, **launch.arguments}
    return all(launched.get(name) == value for name, value in among[chosen].items())
