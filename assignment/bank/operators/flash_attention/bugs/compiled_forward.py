"""Planted bugs of FlashAttention-2 forward in Triton that only a compiler sees: results are right in the simulator."""

from assignment.bank.operators.edits import bug

PROBLEM = "flash_forward_triton"
FILES = ("triton_forward.py", "flash_attention.py")
CHECK = "test_flash_forward.py::test_triton_compiles"

BUGS = (
    bug(
        "tiles of 128 in four stages take 300 KB of shared memory",
        CHECK,
        "tile_size = min(64, 4096 // d_tile_size) → tile_size = max(16, min(128, 16384 // d_tile_size))",
        "num_stages=1, → num_stages=4,",
        compiled="num_stages=4",
    ),
    bug("six warps", CHECK, "num_stages=1, → num_warps=6,", compiled="_forward_kernel[grid]("),
    bug("64 warps, more threads than a program has", CHECK, "num_stages=1, → num_warps=64,", compiled="num_warps=64"),
)
