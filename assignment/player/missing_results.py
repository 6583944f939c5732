"""Results of a call that no program stored, and likely causes."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import torch

from assignment.simulator import undefined

EVERYWHERE = 0  # rows in all dimensions but the last
TILES = (16, 32, 64, 128, 256, 512, 1024)  # of rows, that kernels use
DOES_IT_COUNT_OTHERS = "does the grid count another tensor's rows"
IS_IT_ROUNDED_DOWN = "is the grid rounded down, where triton.cdiv rounds up"


def never_stored(
    names: Sequence[str],
    groups: Sequence[Sequence[torch.Tensor]],
    idle: Sequence[str] = (),
    inputs: Sequence[torch.Tensor] = (),
    rows_at: Mapping[str, int | None] = MappingProxyType({}),
) -> list[str]:
    """Return a line for each result with unwritten elements.

    Args:
        names: of the results.
        groups: the results of each call.
        idle: launches that stored nothing, in words.
        inputs: of the call.
        rows_at: of a result whose rows lie in each entry of a batch, their dimension; None of one without rows.
            Elsewhere all rows lie behind one another.
    """
    lines = []
    for group in groups:
        known = names if len(names) == len(group) else [f"result {i} of {len(group)}" for i in range(1, len(group) + 1)]
        for name, result in zip(known, group, strict=True):
            if where := undefined.unwritten_in(result):
                line = f"never stored: {where[0]} of the {result.numel()} elements of {name}, the first at {where[1]}"
                lines.append(line + cause(name, result, idle, inputs, rows_at))
    return lines


def cause(
    name: str,
    result: torch.Tensor,
    idle: Sequence[str],
    inputs: Sequence[torch.Tensor],
    rows_at: Mapping[str, int | None],
) -> str:
    """Return a likely cause of unwritten elements, after a colon; "" if there is none."""
    unwritten = undefined.are_unwritten(result)
    if unwritten is None:
        return ""
    if unwritten.all():
        return f": {idle[0]}" if idle else ": was something stored to a copy of it, as reshape may make?"
    rows = by_row(unwritten, max((x.ndim for x in inputs), default=0), rows_at.get(name, EVERYWHERE))
    n_stored = 0 if rows is None else stored_before_the_rest(rows)
    if rows is None or not n_stored:
        return ""
    others = lengths(inputs) - {len(rows)} if name in rows_at else set()
    is_anothers = any(n_stored == -(-other // tile) * tile for other in others for tile in (1, *TILES))
    is_rounded_down = any(n_stored == len(rows) // tile * tile for tile in TILES)
    questions = [DOES_IT_COUNT_OTHERS] * is_anothers + [IS_IT_ROUNDED_DOWN] * is_rounded_down
    return f": of {len(rows)} rows {n_stored} are stored: {', or '.join(questions)}?" if questions else ""


def lengths(inputs: Sequence[torch.Tensor]) -> set[int]:
    """Return the numbers of queries and keys."""
    n_dims = max((x.ndim for x in inputs), default=0)
    return {x.shape[-2] for x in inputs if x.ndim == n_dims > 1}


def by_row(unwritten: torch.Tensor, n_dims: int, rows_at: int | None) -> torch.Tensor | None:
    """Return (rows, elements), those of all batches together; None if there are no rows."""
    if rows_at is None or not unwritten.ndim:
        return None
    if rows_at != EVERYWHERE:
        return unwritten.movedim(rows_at, 0).flatten(1) if unwritten.ndim > 1 else unwritten[:, None]
    return unwritten.flatten(0, -2) if unwritten.ndim == n_dims > 1 else unwritten.reshape(-1, 1)


def stored_before_the_rest(unwritten: torch.Tensor) -> int:
    """Return how many rows are stored, if all rows after them are unwritten; else 0."""
    none, everything = ~unwritten.any(1), unwritten.all(1)
    n_stored = int(none.sum())
    return n_stored if none[:n_stored].all() and everything[n_stored:].all() else 0
