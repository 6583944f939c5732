"""Random numbers of a run: none of them gives another, or the seed, away, and a seed repeats them all."""

# mypy: disable-error-code="arg-type, func-returns-value"

import argparse
import random
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from assignment import plugin
from assignment.commands import cli
from assignment.judge import seeds
from assignment.plugin import fixtures
from assignment.simulator import calls, launch

HANDBOOK = Path(__file__).parents[1] / "README.md"
BEYOND_32_BITS = 1 << 40


def test_a_new_seed_has_64_bits():
    drawn = {seeds.new_seed() for _ in range(200)}
    assert len(drawn) == 200
    assert 2**63 < max(drawn) < 2**64  # all of 200 below half: once in 10^60
    assert all(any(seed >> bit & 1 for seed in drawn) for bit in range(64))


@pytest.mark.parametrize("other", [(8, "inputs", "a"), (7, "order", "a"), (7, "inputs", "b"), (7, "inputsa", "")])
def test_a_stream_belongs_to_seed_purpose_and_test(other):
    mine = (7, "inputs", "a")
    assert seeds.number(*mine) == seeds.number(*mine) != seeds.number(*other)
    first, again, another = (torch.randn(50, generator=seeds.generator(*key)) for key in (mine, mine, other))
    assert torch.equal(first, again)
    assert not torch.equal(first, another)


def test_a_generator_has_all_of_its_state_from_the_key(monkeypatch):
    """PyTorch's manual_seed() takes 32 bits, which can all be tried"""
    made = []
    for number in (5, 5 + BEYOND_32_BITS):
        monkeypatch.setattr(seeds, "key", lambda *_, number=number: number.to_bytes(64))
        made.append(seeds.generator(0))
    assert not torch.equal(*(torch.randint(2**31, (50,), generator=generator) for generator in made))
    state = made[0].get_state()[seeds.STATE].view(torch.int64)
    assert len(state.unique()) == seeds.WORDS
    assert 0 <= state.min() < 2**24
    assert 2**32 - 2**24 < state.max() < 2**32


def test_numbers_of_a_generator_are_spread_evenly():
    drawn = torch.rand(100_000, generator=seeds.generator(7, "inputs", "a"))
    assert abs(drawn.mean() - 0.5) < 0.005
    assert abs(drawn.var() - 1 / 12) < 0.002


@pytest.mark.parametrize("made", [seeds.number, seeds.generator])
def test_nothing_is_seeded_with_the_seed_itself(made, monkeypatch):
    """What a generator starts from can be worked out from what it gives"""
    seeded = []
    monkeypatch.setattr(seeds, "key", lambda *purpose: seeded.append(purpose) or bytes(range(64)))
    one, other = made(7), made(8)
    assert seeded == [(7,), (8,)]
    if isinstance(one, torch.Generator):
        one, other = one.get_state().tolist(), other.get_state().tolist()
    assert one == other


def test_the_order_of_programs_is_seeded_with_a_digest(monkeypatch):
    """Python's generator, seeded with a text, would hold that text"""
    seeded = []
    monkeypatch.setattr(launch.random, "Random", lambda seed: seeded.append(seed) or random)
    list(launch._programs((8, 1, 1), SimpleNamespace(waits=False), calls.Call(seed=987654321)))
    assert type(seeded[0]) is bytes
    assert len(seeded[0]) == 64
    assert b"987654321" not in seeded[0]


def test_cases_keep_their_order_whichever_are_run():
    items = [SimpleNamespace(path=Path("tests/test_x.py"), name=f"test_y[{i}]") for i in range(30)]

    def order(seed, some):
        return [item.name for item in sorted(some, key=lambda item: plugin.turn(seed, item))]

    assert order(1, items) != order(2, items)
    kept = {item.name for item in items[::3]}
    assert order(1, items[::3]) == [name for name in order(1, items) if name in kept]


def test_a_rerun_says_where_it_ran():
    """As far as the first run was told; the seed to the last digit"""
    seed = 2**64 - 1
    plain = cli.parse_arguments([])
    assert plain.command(seed) == f"uv run grade.py --seed {seed}"
    told = cli.parse_arguments(["x y", "--device", "cpu", "--sandbox", "landlock", "--jobs", "3", "--seed", str(seed)])
    assert told.seed == seed
    assert told.command(seed) == (f"uv run grade.py 'x y' --device cpu --sandbox landlock --jobs 3 --seed {seed}")


@pytest.mark.parametrize("text", ["-1", "x", "1.5", "", "9" * 5000])
def test_a_seed_that_is_none_is_refused_in_a_sentence(text, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.parse_arguments([f"--seed={text}"])
    assert ended.value.code == 2
    assert "expected a natural number of up to 40 digits, got" in (said := capsys.readouterr().err)
    assert len(said) < 3000


def test_natural_numbers_are_read_as_before():
    assert cli._natural("0") == 0
    with pytest.raises(argparse.ArgumentTypeError):
        cli._natural("+1")


def test_the_handbook_gives_nobody_a_seed():
    """A class graded with the one that it shows would know its inputs"""
    assert not re.search(r"--seed[ =]\d", HANDBOOK.read_text())


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 22])
def test_some_cases_of_each_check_move_last_bits(n):
    """Two at least, where there are as many, and not all of many; a case alone moves what it moves among others"""
    mark = SimpleNamespace(args=("case", range(n)))
    moved = [
        [
            fixtures.moves_last_bits(
                SimpleNamespace(
                    path=Path("test_x.py"), name="test", originalname="test",
                    callspec=SimpleNamespace(indices={"case": i}),
                    iter_markers=lambda name: [mark],
                ),
                seed,
            )
            for i in range(n)
        ]
        for seed in range(20)
    ]  # fmt: skip
    assert min(map(sum, moved)) >= min(n, 2)
    assert n < 4 or max(map(sum, moved)) <= n / 2
    assert n < 4 or len(set(map(tuple, moved))) > 1
