"""Results of a call that no program stored, and likely causes."""

from collections.abc import Sequence

import torch

from assignment.simulator import undefined

TILES = (16, 32, 64, 128, 256, 512, 1024)  # of rows, that kernels use
DOES_IT_COUNT_OTHERS = "does the grid count another tensor's rows"
IS_IT_ROUNDED_DOWN = "is the grid rounded down, where triton.cdiv rounds up"
OF_A_BATCH = {
    "o": -2,
    "lse": -1,
    "grad_q": -2,
    "grad_k": -2,
    "grad_v": -2,
}  # where rows lie; elsewhere all are in a row


def never_stored(
    names: Sequence[str],
    groups: Sequence[Sequence[torch.Tensor]],
    empty_grids: Sequence[str] = (),
    inputs: Sequence[torch.Tensor] = (),
) -> list[str]:
    """Return a line for each result with unwritten elements.

    Args:
        names: of the results.
        groups: the results of each call.
        empty_grids: launches of no program, in words.
        inputs: of the call.
    """
    lines = []
    for group in groups:
        known = names if len(names) == len(group) else [f"result {i} of {len(group)}" for i in range(1, len(group) + 1)]
        for name, result in zip(known, group, strict=True):
            if where := undefined.unwritten_in(result):
                line = f"never stored: {where[0]} of the {result.numel()} elements of {name}, the first at {where[1]}"
                lines.append(line + cause(name, result, empty_grids, inputs))
    return lines


def cause(name: str, result: torch.Tensor, empty_grids: Sequence[str], inputs: Sequence[torch.Tensor]) -> str:
    """Return a likely cause of unwritten elements, after a colon; "" if there is none."""
    unwritten = undefined.are_unwritten(result)
    if unwritten is None:
        return ""
    if unwritten.all():
        return f": {empty_grids[0]}" if empty_grids else ": was something stored to a copy of it, as reshape may make?"
    rows = by_row(name, unwritten, max((x.ndim for x in inputs), default=0))
    n_stored = 0 if rows is None else stored_before_the_rest(rows)
    if rows is None or not n_stored:
        return ""
    others = lengths(inputs) - {len(rows)} if name in OF_A_BATCH else set()
    is_anothers = any(n_stored == -(-other // tile) * tile for other in others for tile in (1, *TILES))
    is_rounded_down = any(n_stored == len(rows) // tile * tile for tile in TILES)
    questions = [DOES_IT_COUNT_OTHERS] * is_anothers + [IS_IT_ROUNDED_DOWN] * is_rounded_down
    return f": of {len(rows)} rows {n_stored} are stored: {', or '.join(questions)}?" if questions else ""


def lengths(inputs: Sequence[torch.Tensor]) -> set[int]:
    """Return the numbers of queries and keys."""
    n_dims = max((x.ndim for x in inputs), default=0)
    return {x.shape[-2] for x in inputs if x.ndim == n_dims > 1}


def by_row(name: str, unwritten: torch.Tensor, n_dims: int) -> torch.Tensor | None:
    """Return (rows, elements), those of all batches together; None if there are no rows."""
    if name == "grad_weight" or not unwritten.ndim:
        return None
    if name in OF_A_BATCH:
        return unwritten.movedim(OF_A_BATCH[name], 0).flatten(1) if unwritten.ndim > 1 else unwritten[:, None]
    return unwritten.flatten(0, -2) if unwritten.ndim == n_dims > 1 else unwritten.reshape(-1, 1)


def stored_before_the_rest(unwritten: torch.Tensor) -> int:
    """Return how many rows are stored, if all rows after them are unwritten; else 0."""
    none, everything = ~unwritten.any(1), unwritten.all(1)
    n_stored = int(none.sum())
    return n_stored if none[:n_stored].all() and everything[n_stored:].all() else 0
