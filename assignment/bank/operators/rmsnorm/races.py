"""What is raced: shape, peer, the fraction of its speed for full points as the specification has it, and options."""

CASES: dict[str, tuple] = {
    "rmsnorm_forward": ((65536, 4096), "copying", 0.75, {}),
    "rmsnorm_backward": ((65536, 4096), "copying", 0.6, {}),
}
