"""Parts of the base that several styles edit."""

from pathlib import Path

PROBLEMS = ("rmsnorm",)
FILES = ("rmsnorm.py",)
BASE = (Path(__file__).parents[1] / "base/rmsnorm.py").read_text(encoding="utf-8")


def between(first: str, end: str) -> str:
    """Return the base's text from one part to another."""
    return BASE[BASE.index(first) : BASE.index(end)]


KERNELS = between("@triton.jit", "    partial_ptrs = ") + BASE[BASE.index("    partial_ptrs = ") :]
BACKWARD_KERNEL = KERNELS[KERNELS.index("@triton.jit\ndef _backward_kernel") :]
SIZES = between("    d_tile_size", "    grid =")
FORWARD_PASS = between("    d_tile_size", "    return y.reshape")
FORWARD_CALL = between("    grid =", "            x_rows.stride(0)")
BACKWARD_PASS = between("    partial_grad_w = ", "    return grad_x.reshape")
FUNCTION = "    return RMSNorm.apply(x, weight, eps)\n"


def above(text: str) -> tuple[str, str]:
    """Return the edit that puts text below the sizes, above the functions."""
    return "ROWS_PER_PROGRAM = 64\n", f"ROWS_PER_PROGRAM = 64\n{text}"


def below(text: str) -> tuple[str, str]:
    """Return the edit that puts text below the kernels."""
    last = "    tl.store(partial_ptrs, grad_w, mask=mask)\n"
    return last, f"{last}\n\n{text}"


def other_forward(forward: str, kernels: str) -> tuple[tuple[str, str], ...]:
    """Return the edits that launch other kernels in the forward pass: from outputs that are not written."""
    return (FORWARD_PASS, f"    if n_rows > 0:\n{forward}"), ("def _forward_kernel", kernels)


def other_backward(backward: str, kernels: str) -> tuple[tuple[str, str], ...]:
    """Return the edits that launch other kernels in the backward pass: from a gradient of x that is not written."""
    no_rows = "    if n_rows == 0:\n        return grad_x.reshape(x.shape), torch.zeros_like(weight)\n"
    return (BACKWARD_PASS, no_rows + backward), (BACKWARD_KERNEL, kernels)
