"""What Triton has in the place of PyTorch's functions, which a kernel cannot call."""

import ast
from collections.abc import Set

import triton.language as tl

from assignment.protocol.messages import Value

OTHERWISE = {  # that go by another name
    **dict.fromkeys(("matmul", "mm", "bmm", "einsum", "addmm"), "tl.dot(a, b)"),
    **dict.fromkeys(("empty", "zeros_like", "empty_like"), "tl.zeros((SIZE,), dtype=tl.float32)"),
    **dict.fromkeys(("transpose", "t", "movedim"), "tl.trans(x)"),
    **dict.fromkeys(("cat", "concat", "stack"), "tl.join(x, y)"),
    "zeros": "tl.zeros((SIZE,), dtype=tl.float32)",
    "ones": "tl.full((SIZE,), 1.0, tl.float32)",
    "full": "tl.full((SIZE,), value, tl.float32)",
    "arange": "tl.arange(0, SIZE)",
    "amax": "tl.max(x, axis=1)",
    "amin": "tl.min(x, axis=1)",
    "sum": "tl.sum(x, axis=1)",
    "max": "tl.max(x, axis=1)",
    "min": "tl.min(x, axis=1)",
    "mean": "tl.sum(x, axis=1) / n",
    "square": "x * x",
    "pow": "tl.exp2(y * tl.log2(x))",
    "tanh": "2 * tl.sigmoid(2 * x) - 1",
}


def is_of_torch(binding: Value) -> bool:
    """Return whether a kernel's name is bound to PyTorch, or a module of it, and uses more than its constants."""
    return isinstance(binding, dict) and str(binding.get("unknown", "")).partition(".")[0] == "torch"


def instead_of(names: Set[str], tree: ast.AST) -> tuple[str, ast.AST] | None:
    """Return what to write for the first use of PyTorch by these names, and where it stands; None if there is none."""
    for node in ast.walk(tree):  # outer ones first
        if isinstance(node, ast.Attribute) and _root(node) in names:
            is_triton = callable(getattr(tl, node.attr, None))
            triton = OTHERWISE.get(node.attr) or (f"tl.{node.attr}" if is_triton else "")
            instead = f"write {triton}" if triton else "Triton has its own, such as tl.exp, tl.sum and tl.where"
            return f"a kernel cannot use {ast.unparse(node)}, PyTorch's, which works on whole tensors: {instead}", node
    return None


def _root(node: ast.AST) -> str:
    """Return the name in front of attributes; "" if there is something else."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
