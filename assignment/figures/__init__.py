"""The handout's figures, drawn by code: `python -m assignment.figures` writes the SVG files.

The files are handout/figures/*.svg. The same code gives the same bytes, so a test can compare the
committed files. Numbers in a figure are computed here, or are in the handout. A figure has its own
background and two sets of colours; the reader's `prefers-color-scheme` picks one.
"""

from collections.abc import Callable

from assignment.figures import attention, grader, machine, numerics, tiles
from assignment.figures.svg import Drawing

FIGURES: dict[str, Callable[[], Drawing]] = {
    "memory": machine.memory,
    "roofline": machine.roofline,
    "stages": machine.stages,
    "fusion_stops": machine.fusion_stops,
    "vector_add": tiles.vector_add,
    "tiles": tiles.programs_and_tiles,
    "shapes": tiles.shapes,
    "strides": tiles.strides,
    "groups": tiles.groups,
    "ranks": tiles.ranks,
    "weighted_sum": tiles.weighted_sum,
    "partial_sums": tiles.partial_sums,
    "removed_component": tiles.removed_component,
    "block_scales": tiles.block_scales,
    "attention_traffic": attention.traffic,
    "online_softmax": attention.online_softmax,
    "keys_walk": attention.keys_walk,
    "causal_tiles": attention.causal_tiles,
    "recomputation": attention.recomputation,
    "backward_walks": attention.backward_walks,
    "lost_update": attention.lost_update,
    "formats": numerics.formats,
    "number_line": numerics.number_line,
    "sum_error": numerics.sum_error,
    "two_orders": numerics.two_orders,
    "two_trees": numerics.two_trees,
    "processes": grader.processes,
}
