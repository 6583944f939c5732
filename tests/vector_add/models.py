"""What vector_add returns, and how far a right kernel may be from it."""

from torch import Tensor

from tests.compare import Expected, expect


def vector_add(x: Tensor, y: Tensor) -> dict[str, Expected]:
    """z = x + y, rounded once."""
    value = x.double() + y.double()
    return {"z": expect(value, [[x.float() + y.float()]], [], x.double().abs() + y.double().abs(), x.dtype, rows=False)}
