"""What a bench shows and keeps, with timings that are made up."""

import csv
import io
import types

import pytest
from rich.console import Console

from assignment.operators.flash_attention import workload as attention
from assignment.operators.matmul import workload as matmul
from assignment.operators.matmul_block_scaled import workload as float8
from assignment.operators.rmsnorm import workload as rmsnorm
from assignment.timing import bench, contestants, plots, roof, speed

ROOF = roof.Roof(4e12, 8e14)
PNG = b"\x89PNG"


def row(work, name, microseconds):
    seconds = 1e-6 * microseconds
    return bench.row_of(work, name, bench.clock.Timing(seconds, seconds, seconds, 0.1), ROOF)


@pytest.fixture
def sweep(monkeypatch):
    """Runs the sweep, and returns the rows and what was printed; who is slow takes twice as long."""

    def rows(_, work):
        for name, times in (("submission", 1), ("copying", 0.9), ("flash2", 2)):
            if (name == "copying") != work.function.startswith("flash") or name == "submission":
                yield row(work, name, times * work.nbytes / 1e6)

    monkeypatch.setattr(bench.Bench, "rows", rows)

    submitted = types.SimpleNamespace(contestant=lambda: None)

    def run(only=(), stop_after=None):
        page, found = io.StringIO(), []
        console = Console(file=page, width=140)
        try:
            for more in bench.run(console, submitted, None, None, ROOF, only):  # type: ignore[arg-type]
                found += more
                if len(found) == stop_after:
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
        return found, page.getvalue()

    return run


def test_a_table_for_each_function(sweep):
    found, page = sweep()
    assert {row.function for row in found} == {work.function for work in bench.sweep([])}
    for function in ("weighted_sum_forward", "rmsnorm_backward", "flash_forward_triton"):
        assert page.count(f"{function}: ") == 1
    assert "4,096 × 80 " in page
    assert "16,384 × 128 causal" in page
    assert "4,096 × 64 float32" in page


def test_a_table_fits_a_terminal_of_80_columns():
    work = attention.workload(16384, 128, bench.torch.bfloat16, True)
    names = ("submission", *(name for name in attention.PEERS["flash_forward_triton"] if name != "hopper"))  # staff's
    page = io.StringIO()
    Console(file=page, width=80).print(bench.table([row(work, name, 2000.0) for name in names]))
    assert page.getvalue().count(" 550 69%") == len(names)
    assert "16,384 × 128 causal" in page.getvalue()
    assert "…" not in page.getvalue()


def test_products_of_8_bits_are_held_against_their_own_limit(monkeypatch):
    monkeypatch.setattr(bench.clock, "Track", lambda work, memory: None)
    monkeypatch.setattr(bench, "measure", lambda dtype: roof.Roof(4e12, 2 * ROOF.operations_per_s))
    submitted = types.SimpleNamespace(contestant=lambda: None)
    works = [float8.workload(8192, 8192, 8192), matmul.workload(8192, 8192, 8192, bench.torch.bfloat16)]
    for work, share in zip(works, (0.5, 1.0), strict=True):
        seconds = work.operations / ROOF.operations_per_s
        timing = bench.clock.Timing(seconds, seconds, seconds, 0.1)
        race = bench.clock.RaceTimes({"submission": timing}, {})
        monkeypatch.setattr(bench.Bench, "_race", lambda *_, race=race: race)
        (found,) = bench.Bench(submitted, None, None, ROOF).rows(work)  # type: ignore[arg-type]
        assert found.roof == pytest.approx(share)


def test_each_size_is_told_as_soon_as_it_is_timed(sweep):
    """With what is left; also where it is stopped"""
    works = bench.sweep(["rmsnorm_forward"])
    _, page = sweep(["rmsnorm_forward"], stop_after=2)
    first, *_ = [line for line in page.splitlines() if line.strip()]
    assert first.startswith("  rmsnorm_forward ")
    assert "this submission" in first
    assert "copy" in first
    assert first.endswith(f"; {len(works) - 1} sizes to go")


def test_what_was_timed_before_it_was_stopped_is_shown(sweep):
    found, page = sweep(["rmsnorm"], stop_after=4)
    assert len(found) == 4
    assert "131,072 × 2,048" in page
    assert "65,536 × 4,096" not in page


def test_what_is_kept(sweep, tmp_path):
    found, _ = sweep()
    bench.write_csv(tmp_path / "rows.csv", found)
    with (tmp_path / "rows.csv").open(newline="") as file:
        kept = [*csv.DictReader(file)]
    assert len(kept) == len(found)
    assert {(row["function"], row["n"], row["contestant"]) for row in kept} == {
        (row.function, str(row.n), row.contestant) for row in found
    }


def test_rows_are_in_the_file_as_soon_as_they_are_timed(tmp_path, monkeypatch):
    """Nothing that follows, such as a second Ctrl-C, can lose them."""
    table, work = tmp_path / "rows.csv", bench.sweep(["rmsnorm_forward"])[0]

    def run(*_):
        yield [row(work, "submission", 1.0)]
        assert table.read_text().count("\n") == 2  # the first line names the columns
        yield [row(work, "copying", 2.0)]

    monkeypatch.setattr(bench, "run", run)
    monkeypatch.setattr(speed, "BufferMemory", lambda nbytes: None)
    monkeypatch.setattr(roof, "measure", lambda _: ROOF)
    session = types.SimpleNamespace(total=1 << 30, submitted=None, peers=None)
    speed.bench(session, Console(file=io.StringIO()), [], table, None)  # type: ignore[arg-type]
    assert table.read_text().count("\n") == 3


@pytest.mark.parametrize(
    "only",
    [
        (),
        *(
            pytest.param((name,), marks=pytest.mark.slow)
            for name in ("rmsnorm", "weighted_sum", "flash_backward_triton")
        ),
    ],
)
def test_a_picture_of_what_there_is(sweep, only, tmp_path):
    found, _ = sweep(only)
    plots.draw(tmp_path / "a.png", found, ROOF, "a GPU")
    assert (tmp_path / "a.png").read_bytes().startswith(PNG)


def test_a_peer_of_wide_rows_is_not_asked_for_narrow_ones(monkeypatch):
    monkeypatch.setattr(rmsnorm, "FROM_D", {"torch_norm": 4096}, raising=False)
    peers = types.SimpleNamespace(contestant=lambda name: types.SimpleNamespace(name=name))
    submitted = types.SimpleNamespace(contestant=lambda: types.SimpleNamespace(name="submission"))
    made = bench.Bench(submitted, peers, None, ROOF)  # type: ignore[arg-type]
    asked = {
        d: [one.name for one in made._contestants(rmsnorm.workload(64, d, bench.torch.bfloat16))] for d in (2048, 4096)
    }
    assert "torch_norm" not in asked[2048]
    assert "torch_norm" in asked[4096]


def test_versions_of_pytorch_its_libraries_and_peers(monkeypatch, tmp_path):
    (tmp_path / "liger_kernel-0.9.dist-info").mkdir()
    (tmp_path / "liger_kernel-0.9.dist-info" / "METADATA").write_text("Name: liger_kernel\nVersion: 0.9\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = contestants.versions()
    assert found["torch"] == bench.torch.__version__
    assert found["liger-kernel"] == "0.9"
    assert found["cudnn"].count(".") == 2
