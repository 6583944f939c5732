"""FlashAttention-2 (Dao 2023): attention tile by tile, with the logsumexp of each row, and its gradients."""

import math
from typing import Any

from tests.operators import Function, Operator, Problem, counted

CHAPTER = "handout/flash_attention.md"
QKV, RESULTS = ("q", "k", "v"), ("o", "lse")
BACKWARD, GRADIENTS = ("grad_o", *QKV, *RESULTS), ("grad_q", "grad_k", "grad_v")


def count_scores(tensors: dict[str, Any]) -> int:
    """The elements of S = q kᵀ."""
    return tensors["q"][..., 0].numel() * tensors["k"].shape[-2]


def in_words(tensors: dict[str, Any]) -> str:
    """ "77 queries, 80 keys, d 64, 3 batches" """
    q, k = tensors["q"], tensors["k"]
    (n_queries, d), n_keys = q.shape[-2:], k.shape[-2]
    parts = [counted(n_queries, "query", "queries"), counted(n_keys, "key", "keys"), f"d {d}"]
    n_batches = math.prod(q.shape[:-2])
    return ", ".join([*parts, *([f"{n_batches} batches"] if n_batches != 1 else [])])


OPERATOR = Operator(
    name="flash_attention",
    file="cs336_kernels/flash_attention.py",
    position=3,
    problems=(
        Problem("flash_forward_pytorch", "FlashAttention-2 forward, PyTorch", f"{CHAPTER}#forward-in-pytorch"),
        Problem("flash_forward_triton", "FlashAttention-2 forward, Triton", f"{CHAPTER}#forward-in-triton"),
        Problem("flash_backward_pytorch", "FlashAttention-2 backward, PyTorch", f"{CHAPTER}#backward-in-pytorch"),
        Problem("flash_backward_triton", "FlashAttention-2 backward, Triton", f"{CHAPTER}#backward-in-triton"),
    ),
    functions=(
        Function(
            name="flash_forward_pytorch",
            problem="flash_forward_pytorch",
            inputs=QKV,
            outputs=RESULTS,
            oracle="attention_forward",
            in_triton=False,
        ),
        Function(
            name="flash_forward_triton",
            problem="flash_forward_triton",
            inputs=QKV,
            outputs=RESULTS,
            oracle="attention_forward",
        ),
        Function(
            name="flash_backward_pytorch",
            problem="flash_backward_pytorch",
            inputs=BACKWARD,
            outputs=GRADIENTS,
            oracle="attention_backward",
            is_backward=True,
            in_triton=False,
            forward="flash_forward_pytorch",
        ),
        Function(
            name="flash_backward_triton",
            problem="flash_backward_triton",
            inputs=BACKWARD,
            outputs=GRADIENTS,
            oracle="attention_backward",
            is_backward=True,
            sums_rows=True,
            forward="flash_forward_triton",
        ),
        Function(
            name="flash_attention",
            problem="",
            inputs=QKV,
            outputs=("o",),
            oracle="attention_forward",
            sums_rows=True,
            forward="flash_forward_triton",
            gradients="flash_backward_triton",
        ),
    ),
    sized_by="q",
    rows_at={"o": -2, "lse": -1, "grad_q": -2, "grad_k": -2, "grad_v": -2},
    count=count_scores,
    say=in_words,
)
