"""The pictures of a bench: the roofline with every operator on it, and time against size."""

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
    figure, axes = pyplot.subplots(2, 2, figsize=(15, 11), layout="constrained")
    figure.suptitle(f"{gpu}, bfloat16: {TITLES[SUBMISSION]} and its peers")
    roofline(axes[0, 0], rows, roof)
    widths(axes[0, 1], [row for row in rows if row.function.startswith("rmsnorm")])
    for axis, direction in ((axes[1, 0], "forward"), (axes[1, 1], "backward")):
        lengths(axis, [row for row in rows if row.function == f"flash_{direction}_triton" and row.d == D], direction)
    handles = {
        label: handle
        for axis in axes.flat
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
        if label in TITLES.values()
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=5)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def roofline(axis: Axes, rows: list[Row], roof: Roof) -> None:
    """Of each function of the submission the largest size, below what the memory and the tensor cores allow."""
    ridge = roof.operations_per_s / roof.bytes_per_s
    reach = [0.2, ridge, 2e4]
    axis.plot(reach, [min(x * roof.bytes_per_s, roof.operations_per_s) / 1e12 for x in reach], "k-", linewidth=1)
    labels = [(f"{roof.bytes_per_s / 1e12:.2f} TB/s", reach[0]), (f"{roof.operations_per_s / 1e12:.0f} TFLOP/s", ridge)]
    for label, x in labels:
        y = min(x * roof.bytes_per_s, roof.operations_per_s) / 1e12
        axis.annotate(label, (x, y), (0, 8), textcoords="offset points", ha="left" if x == ridge else "center")
    own = [row for row in rows if row.contestant == SUBMISSION and row.dtype == "bfloat16"]
    for i, function in enumerate(dict.fromkeys(row.function for row in own)):
        row = max((row for row in own if row.function == function), key=lambda row: row.n * row.d * (1 + row.tflops))
        axis.plot(
            row.intensity, row.intensity * row.tb_per_s, "os^vDP"[i % 6], color=f"C{i}", markersize=10, alpha=0.8,
            label=f"{function.removesuffix('_triton').replace('_', ' ')}: {row.roof:.0%}",
        )  # fmt: skip
    axis.legend(loc="lower right", title="of the roof")
    axis.set(xscale="log", yscale="log", xlabel="operations a byte", ylabel="TFLOP/s", title="Roofline, largest sizes")
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
