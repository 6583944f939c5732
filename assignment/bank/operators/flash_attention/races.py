"""What is raced: shape, peer, the fraction of its speed for full points as the specification has it, and options."""

CASES: dict[str, tuple] = {
    "flash_forward_triton": ((4096, 64), "flash2", 0.85, {"is_causal": False}),
    "flash_backward_triton": ((4096, 128), "flash2", 0.75, {"is_causal": True}),
}
