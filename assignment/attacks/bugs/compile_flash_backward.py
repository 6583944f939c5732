"""Planted bugs of FlashAttention-2 backward in Triton that only a compiler sees: results are right in the simulator."""

from assignment.attacks.bugs import bug

PROBLEM = "flash_backward_triton"
FILES = ("triton_backward.py", "flash_attention.py")

BUGS = (
    bug(
        "tiles of 128 in three stages take more shared memory than there is",
        "test_compile.py::test_flash_backward_compiles",
        "tile_size = min(64, 4096 // d_tile_size) → tile_size = max(16, min(128, 16384 // d_tile_size))",
        "num_stages=1, → num_stages=3,",
        compiled="num_stages=3",
    ),
)
