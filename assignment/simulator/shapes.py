"""What may be meant where two tiles' shapes do not fit."""

from collections.abc import Sequence


def meant(lhs: Sequence[int], rhs: Sequence[int]) -> str:
    """Return which axis may be wrong of two shapes that do not fit together; "" if that is not known."""
    both = f"{tuple(lhs)} meets {tuple(rhs)}"
    match sorted(([*lhs], [*rhs]), key=lambda shape: (-len(shape), 1 in shape)):
        case [n], [m]:
            rows, columns = [*lhs, *rhs]
            return (
                f"{both}: of a tile of {rows} rows and {columns} columns, a sum or a maximum over axis=1 leaves one "
                f"number a row ({rows}), over axis=0 one a column ({columns}): axis=1?"
            )
        case [rows, columns], [1, n] if n == rows:
            return (
                f"{both}: one number a row ({rows}) stands in a row, where the tile has {columns} columns: [:, None]?"
            )
        case [rows, columns], [n, 1] if n == columns:
            return f"{both}: one number a column ({columns}) stands in a column of {rows} rows: [None, :]?"
        case [rows, columns], [n] if n == rows:
            return f"{both}, which counts as a row: one number a row ({rows}) is made a column by [:, None]"
        case [rows, columns], [n, m] if (n, m) == (columns, rows):
            return f"{both}: is a tl.trans missing, or one too many?"
    return ""
