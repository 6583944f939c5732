"""Parts of the base that several styles edit, and how short edits are written."""

import re
import textwrap
from pathlib import Path

from assignment.bank.operators.edits import ARROW, LINE_END, edited

BASE = Path(__file__).parents[1] / "base"


def lines(text: str) -> list[tuple[str, str]]:
    """Return edits written as "old → new", one a line, which indented lines go on; ⏎ ends a line in them."""
    rows = re.sub(r"\n +", " ", textwrap.dedent(text).strip()).splitlines()
    pairs = (f"{row} ".replace(LINE_END, "\n").split(ARROW) for row in rows)
    return [(old, new.removesuffix(" ")) for old, new in pairs]


def cut(file: str, first: str, last: str) -> str:
    """Return the text of a file of the base, from the first to the last of these words, and to the end of its line."""
    text = (BASE / file).read_text(encoding="utf-8")
    start = text.index(first)
    end = text.index(last, start) + len(last)
    return text[start : text.index("\n", end) + 1]


def put(**new: str) -> list[tuple[str, str]]:
    """Return edits that put new text in place of parts of the base, which are below under these names."""
    return [(globals()[part], text) for part, text in new.items()]


def before(**new: str) -> list[tuple[str, str]]:
    """Return edits that put new functions before a part."""
    return [(globals()[part], f"{text}\n\n{globals()[part]}") for part, text in new.items()]


def changed(part: str, *edits: tuple[str, str]) -> str:
    """Return a part with edits made."""
    return edited({"": part.encode()}, edits, part[:60])[""].decode()


FORWARD = "triton_forward.py"
HOST = cut(FORWARD, "    q = q.reshape", "    lse = torch.empty")
LAUNCH = cut(FORWARD, "    d_tile_size =", ")  # fmt: skip")
CHECK = "def _check("
JIT = "@triton.jit\n"
KERNEL = cut(FORWARD, JIT, "tl.store(lse_ptrs")
SIGNATURE = cut(FORWARD, "    q_ptr,", ":  # fmt: skip")
Q_ROWS = cut(FORWARD, "    batch = tl", "q = tl.load")
Q_LOAD = cut(FORWARD, "    q_ptrs =", "q = tl.load")
STATE = cut(FORWARD, "    row_max = tl.full", "end = tl.minimum")
LOOP = cut(FORWARD, "    for first_key", "row_max = new_max")
SCORES = cut(FORWARD, "    for first_key", "s = tl.where")
K_LOAD = cut(FORWARD, "        k_ptrs =", "k = tl.load")
V_LOAD = cut(FORWARD, "        v_ptrs =", "v = tl.load")
VISIBLE = cut(FORWARD, "        visible =", "s = tl.where")
SELECT = cut(FORWARD, "        s = tl.where", "s")
SOFTMAX = LOOP.removeprefix(SCORES)
O_STORE = cut(FORWARD, "    o_ptrs =", "tl.store(o_ptrs")
LSE_STORE = cut(FORWARD, "    lse_ptrs =", "tl.store(lse_ptrs")

BACKWARD = "triton_backward.py"
B_LAUNCH = cut(BACKWARD, "    d_tile_size =", "num_stages=1,\n        )  # fmt: skip")
B_DELTA = cut(BACKWARD, "        _delta_kernel[", ")  # fmt: skip")
B_KERNELS = cut(BACKWARD, JIT, "tl.store(grad_v_ptrs")
B_TILE = cut(BACKWARD, "    keys = (first_key", "tl.store(grad_v_ptrs")  # what a program does with its tile of keys

# Whole functions and a class
TRITON_FORWARD, TRITON_BACKWARD = "def flash_forward_triton", "def flash_backward_triton"
PYTORCH_FORWARD, PYTORCH_BACKWARD = "def flash_forward_pytorch", "def flash_backward_pytorch"
AUTOGRAD = "class FlashAttention"
