"""Parts of the base that several styles edit, and how short edits are written."""

import re
import textwrap
from pathlib import Path

from assignment.bank.edits import ARROW, LINE_END

BASE = Path(__file__).parents[1] / "base"


def lines(text: str) -> list[tuple[str, str]]:
    """Return edits written as "old → new", one a line, which indented lines go on; ⏎ ends a line in them."""
    rows = re.sub(r"\n +", " ", textwrap.dedent(text).strip()).splitlines()
    pairs = (row.replace(LINE_END, "\n").split(ARROW) for row in rows)
    return [(old, new) for old, new in pairs]


def cut(file: str, first: str, last: str) -> str:
    """Return the text of a file of the base, from the first to the last of these words, and to the end of its line."""
    text = (BASE / file).read_text(encoding="utf-8")
    start = text.index(first)
    return text[start : text.index("\n", text.index(last, start)) + 1]


FORWARD = "triton_forward.py"
IMPORTS = "import math\n\nimport torch\nimport triton\nimport triton.language as tl\n"
LAUNCH = cut(FORWARD, "    d_tile_size =", ")  # fmt: skip")
SIGNATURE = cut(FORWARD, "    q_ptr,", ":  # fmt: skip")
Q_ROWS = cut(FORWARD, "    batch =", "q = tl.load")
LOOP = cut(FORWARD, "    for first_key", "row_max = new_max")
SCORES = cut(FORWARD, "    for first_key", "s = tl.where")
SELECT = cut(FORWARD, "        s = tl.where", "s")
K_LOAD = cut(FORWARD, "        k_ptrs =", "k = tl.load")
V_LOAD = cut(FORWARD, "        v_ptrs =", "v = tl.load")
SOFTMAX = LOOP.removeprefix(SCORES)
STORES = cut(FORWARD, "    o = acc", "tl.store(lse_ptrs")
