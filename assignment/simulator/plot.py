"""A picture of one launch: which program touched which element, and how often it was loaded."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .layout import Layout
from .trace import LaunchCost, Traffic

_PANEL_SIZE = 3.4, 3.0  # inches
_FINEST = 1500  # rows or columns of a panel; of larger tensors, elements are left out evenly
_COLOURS = 20  # of the colormap tab20; program 21 has the first one's again


@dataclass(frozen=True)
class _Panel:
    tensor: Traffic
    action: str
    is_count: bool  # how often, rather than by whom


def plot(launches: Sequence[LaunchCost], number: int, file: Path) -> str | None:
    """Draw launch `number`, from 1, into `file`; returns the problem if it cannot."""
    if not launches:
        return "nothing drawn: the script launched no kernel"
    if number > len(launches):
        return f"nothing drawn: expected --launch up to {len(launches)}, the number of launches, got {number}"
    launch = launches[number - 1]
    panels = list(_panels(launch))
    if not panels:
        return f"nothing drawn: launch {number}, {launch.kernel}, touched no tensor"
    figure = _figure(launch, number, panels)
    try:
        figure.savefig(file, dpi=130)
    except OSError as error:
        return f"nothing drawn: {file}: {error.strerror}"
    print(f"launch {number} drawn in {file}")
    return None


def _panels(launch: LaunchCost) -> Iterator[_Panel]:
    for tensor in launch.tensors:
        for action in tensor.counts:
            yield _Panel(tensor, action, is_count=False)
            if action == "loaded":
                yield _Panel(tensor, action, is_count=True)


def _figure(launch: LaunchCost, number: int, panels: list[_Panel]) -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    columns = min(len(panels), 3 if len(panels) <= 6 else 4)
    rows = math.ceil(len(panels) / columns)
    width, height = _PANEL_SIZE
    figure = Figure(figsize=(max(columns, 2) * width, rows * height + 1), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax, panel in itertools.zip_longest(axes, panels):
        _draw(figure, ax, panel) if panel else ax.set_axis_off()
    figure.suptitle(f"launch {number}: {launch.kernel}, grid {launch.grid}, programs: {launch.programs}")
    _add_legend(figure, launch)
    return figure


def _draw(figure: Any, ax: Any, panel: _Panel) -> None:
    from matplotlib.ticker import MaxNLocator, NullLocator

    tensor, action = panel.tensor, panel.action
    touched = (tensor.counts if panel.is_count else tensor.last)[action]
    image, (n_rows, n_cols) = _matrix(tensor, touched)
    colours = {"cmap": "viridis", "vmin": 0} if panel.is_count else {"cmap": "tab20", "vmin": 0, "vmax": _COLOURS}
    values = image if panel.is_count else (image - 1) % _COLOURS + 0.5
    shown = ax.imshow(
        np.ma.masked_where(image == 0, values),
        aspect="auto",
        interpolation="nearest",
        extent=(-0.5, n_cols - 0.5, n_rows - 0.5, -0.5),
        **colours,
    )
    ax.set_title(f"{tensor.name} {tensor.shape}\n{'times ' if panel.is_count else ''}{_TITLES[action]}", fontsize=9)
    for axis, size in ((ax.xaxis, n_cols), (ax.yaxis, n_rows)):
        axis.set_major_locator(MaxNLocator(min(size, 6), integer=True) if size > 1 else NullLocator())
    ax.tick_params(labelsize=7)
    if panel.is_count:
        figure.colorbar(shown, ax=ax, ticks=MaxNLocator(6, integer=True)).ax.tick_params(labelsize=7)


_TITLES = {"loaded": "loaded", "stored": "stored", "updated": "updated atomically"}


def _matrix(tensor: Traffic, touched: np.ndarray) -> tuple[np.ndarray, tuple[int, int]]:
    """Return the map as rows along the last dimension, thinned out, and its full size."""
    shape = tensor.shape or (1,)
    n_rows, n_cols = math.prod(shape[:-1]), shape[-1]
    rows, cols = _spread(n_rows), _spread(n_cols)
    leading = np.unravel_index(rows, shape[:-1]) if len(shape) > 1 else ()
    strides = tensor.strides or (1,)
    starts = sum((i * s for i, s in zip(leading, strides, strict=False)), np.zeros(len(rows), np.int64))
    places = starts[:, None] + cols * strides[-1]
    return touched[_index(tensor, places, touched.size)], (n_rows, n_cols)


def _spread(size: int) -> np.ndarray:
    """Return all indices below size, or _FINEST of them."""
    return np.arange(size) if size <= _FINEST else np.arange(_FINEST) * size // _FINEST


def _index(tensor: Traffic, places: np.ndarray, size: int) -> np.ndarray:
    """Return where in a map of `size` elements those at `places` in the tensor are."""
    layout = Layout(tensor.shape, tensor.strides, tensor.itemsize)
    if tensor.origin * tensor.itemsize + layout.nbytes <= size * tensor.itemsize:
        return tensor.origin + places
    # of a huge storage a map has the tensor's own elements alone
    return layout.compact(places * tensor.itemsize)


def _add_legend(figure: Any, launch: LaunchCost) -> None:
    """Add the program ids by colour, where every program has its own colour."""
    if launch.programs > _COLOURS:
        figure.supxlabel(f"one colour a program, repeating every {_COLOURS} programs; white: untouched", fontsize=8)
        return
    from matplotlib import colormaps
    from matplotlib.patches import Patch

    colour = colormaps["tab20"]
    ids = [(x, y, z) for z, y, x in itertools.product(*map(range, reversed(launch.grid)))]
    handles = [Patch(color=colour(number), label=str(program)) for number, program in enumerate(ids)]
    figure.legend(handles=handles, loc="outside right upper", title="last program", fontsize=7, title_fontsize=8)
