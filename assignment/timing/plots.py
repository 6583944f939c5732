"""The pictures of a bench: the roofline with every operator on it, and time against size."""

import functools
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

from assignment.timing.bench import SUBMISSION, TITLES, Row
from assignment.timing.roof import Roof

COLOURS = dict(zip(TITLES, pyplot.get_cmap("tab10").colors, strict=True))  # type: ignore[attr-defined]
MARKERS = dict(zip(TITLES, "os^vDP*X<>", strict=True))
D = 128  # of the attention that is drawn


def draw(path: Path, rows: list[Row], roof: Roof, gpu: str) -> None:
    """A panel for all that was timed, and one for each kind of it."""
    panels: list[Callable[[Axes], None]] = [lambda axis: roofline(axis, rows, roof)]
    if norms := [row for row in rows if row.function.startswith("rmsnorm")]:
        panels.append(lambda axis: widths(axis, norms))
    for direction in ("forward", "backward"):
        function = f"flash_{direction}_triton"
        if own := [row for row in rows if (row.function, row.dtype, row.d) == (function, "bfloat16", D)]:
            panels.append(functools.partial(lengths, rows=own, direction=direction))
    n_columns, n_rows = min(2, len(panels)), -(-len(panels) // 2)
    figure, axes = pyplot.subplots(
        n_rows, n_columns, figsize=(7.5 * n_columns, 5.5 * n_rows), layout="constrained", squeeze=False
    )
    figure.suptitle(f"{gpu}, bfloat16: {TITLES[SUBMISSION]} and its peers")
    for panel, axis in zip(panels, axes.flat, strict=False):
        panel(axis)
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    handles = {
        label: handle
        for axis in axes.flat
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
        if label in TITLES.values()
    }
    if handles:
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=5)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def roofline(axis: Axes, rows: list[Row], roof: Roof) -> None:
    """Of each function of the submission the largest size, below what the memory and the tensor cores allow."""
    ridge = roof.operations_per_s / roof.bytes_per_s
    reach = [0.2, ridge, 2e4]
    axis.plot(reach, [min(x * roof.bytes_per_s, roof.operations_per_s) / 1e12 for x in reach], "k-", linewidth=1)
    memory, products = f"{roof.bytes_per_s / 1e12:.2f} TB/s", f"{roof.operations_per_s / 1e12:.0f} TFLOP/s"
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


def widths(axis: Axes, rows: list[Row]) -> None:
    for name in TITLES:
        for function, style in (("rmsnorm_forward", "-"), ("rmsnorm_backward", "--")):
            own = sorted((row.d, row.tb_per_s) for row in rows if row.contestant == name and row.function == function)
            if own:
                label = TITLES[name] if style == "-" else None
                axis.plot(*zip(*own, strict=True), style, marker=MARKERS[name], color=COLOURS[name], label=label)
    axis.set(xlabel="width d", ylabel="TB/s", title="RMSNorm: forward (full lines), backward (broken)", ylim=(0, None))
    axis.set_xscale("log", base=2)
    axis.grid(alpha=0.3)


def lengths(axis: Axes, rows: list[Row], direction: str) -> None:
    for name in TITLES:
        for is_causal, style in ((False, "-"), (True, "--")):
            own = sorted(
                (row.n, row.microseconds) for row in rows if (row.contestant, row.is_causal) == (name, is_causal)
            )
            if own:
                label = None if is_causal else TITLES[name]
                axis.plot(*zip(*own, strict=True), style, marker=MARKERS[name], color=COLOURS[name], label=label)
    axis.set(
        yscale="log", xlabel="queries and keys n", ylabel="µs a call",
        title=f"Attention {direction}, d = {D}, 16,384 tokens: full lines; causal: broken",
    )  # fmt: skip
    axis.set_xscale("log", base=2)
    axis.grid(alpha=0.3, which="both")
