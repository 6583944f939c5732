"""The plots of a bench: the roofline with every operator on it, and time against size."""

import functools
import itertools
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

from assignment import operators
from assignment.operators.workloads import Panel
from assignment.timing.bench import BenchRow
from assignment.timing.contestants import SUBMISSION, TITLES
from assignment.timing.roof import Roof

COLOURS = dict(zip(TITLES, itertools.cycle(pyplot.get_cmap("tab10").colors)))  # type: ignore[attr-defined]
MARKERS = dict(zip(TITLES, itertools.cycle("os^vDP*X<>")))


def draw(path: Path, rows: list[BenchRow], roof: Roof, gpu: str) -> None:
    """Draw a panel for all that was timed, and one for each kind of it."""
    panels: list[Callable[[Axes], None]] = [lambda axis: roofline(axis, rows, roof)]
    for workload in operators.parts("workload"):
        for panel in getattr(workload, "PANELS", ()):
            if own := [row for row in rows if is_in(row, panel)]:
                panels.append(functools.partial(against_size, rows=own, panel=panel))
    n_columns, n_rows = min(2, len(panels)), -(-len(panels) // 2)
    figure, axes = pyplot.subplots(
        n_rows, n_columns, figsize=(7.5 * n_columns, 5.5 * n_rows), layout="constrained", squeeze=False
    )
    figure.suptitle(f"{gpu}, bfloat16: {TITLES[SUBMISSION]} and its peers")
    for panel, axis in zip(panels, axes.flat, strict=False):
        panel(axis)
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    drawn = (zip(*axis.get_legend_handles_labels(), strict=True) for axis in axes.flat)
    handles = {label: handle for pairs in drawn for handle, label in pairs if label in TITLES.values()}
    if handles:
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=5)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def roofline(axis: Axes, rows: list[BenchRow], roof: Roof) -> None:
    """Draw each function's largest size under the limits of memory and tensor cores."""
    ridge = roof.operations_per_s / roof.bytes_per_s
    reach = [0.2, ridge, 2e4]
    axis.plot(reach, [min(x * roof.bytes_per_s, roof.operations_per_s) / 1e12 for x in reach], "k-", linewidth=1)
    memory, products = (f"{roof.bytes_per_s / 1e12:.2f} TB/s", f"{roof.operations_per_s / 1e12:.0f} TFLOP/s")
    axis.annotate(memory, (1, roof.bytes_per_s / 1e12), (-8, 8), textcoords="offset points", ha="right")
    axis.annotate(products, (ridge, roof.operations_per_s / 1e12), (8, 8), textcoords="offset points")
    own = [row for row in rows if row.contestant == SUBMISSION and row.dtype == "bfloat16"]
    for i, function in enumerate(dict.fromkeys(row.function for row in own)):
        row = max((row for row in own if row.function == function), key=lambda row: row.n * row.d * (1 + row.tflops))
        axis.plot(
            row.intensity, row.intensity * row.tb_per_s, "os^vDP"[i % 6], color=f"C{i}", markersize=10, alpha=0.8,
            label=f"{function.removesuffix('_triton').replace('_', ' ')}: {row.roof:.0%}",
        )  # fmt: skip
    axis.legend(loc="lower right", title="of the roof")
    top = 3 * roof.operations_per_s / 1e12
    axis.set(xscale="log", yscale="log", ylim=(None, top), title="Roofline, largest sizes")
    axis.set(xlabel="operations a byte", ylabel="TFLOP/s")
    axis.grid(alpha=0.3)


def is_in(row: BenchRow, panel: Panel) -> bool:
    """Return whether a panel draws the row."""
    return row.function in panel.functions and row.dtype == "bfloat16" and panel.d in (None, row.d)


def against_size(axis: Axes, rows: list[BenchRow], panel: Panel) -> None:
    """Draw a line per contestant: dashed for the second function, and where an option is on."""
    for name in TITLES:
        for is_second, style in ((False, "-"), (True, "--")):
            own = sorted(
                (getattr(row, panel.size), getattr(row, panel.value))
                for row in rows
                if (row.contestant, bool(row.switches) or row.function != panel.functions[0]) == (name, is_second)
            )
            if own:
                label = None if is_second else TITLES[name]
                axis.plot(*zip(*own, strict=True), style, marker=MARKERS[name], color=COLOURS[name], label=label)
    axis.set(xlabel=panel.size_in_words, ylabel=panel.value_in_words, title=panel.title)
    axis.set(yscale="log") if panel.value == "microseconds" else axis.set(ylim=(0, None))
    axis.set_xscale("log", base=2)
    axis.grid(alpha=0.3, which="both")
