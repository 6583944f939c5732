"""What is raced: shape, peer, the fraction of its speed for full points as the specification has it, and options."""

CASES: dict[str, tuple] = {
    "dropout_add_layernorm_forward": ((32768, 4096), "copying", 0.35, {}),
    "dropout_add_layernorm_backward": ((32768, 4096), "copying", 0.3, {}),
}
