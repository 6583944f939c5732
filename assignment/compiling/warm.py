"""A first compilation, so that later ones are quicker: it loads and measures what they all need.

Processes forked from a warm one need not do so again.
"""

import os
import tempfile

import triton
import triton.language as tl

from assignment.simulator.triton_private import ASTSource, GPUTarget, compile, knobs, make_backend

from .targets import TARGETS


@triton.jit
def _copy_kernel(x_ptr, y_ptr):
    tl.store(y_ptr, tl.load(x_ptr))


def up() -> None:
    """Compile a small kernel, and ask the assemblers for their versions."""
    with tempfile.TemporaryDirectory() as folder, knobs.cache.scope():  # which gives the environment back
        os.environ["TRITON_CACHE_DIR"] = folder
        for target in TARGETS.values():
            make_backend(GPUTarget("cuda", target.capability, 32)).hash()
        source = ASTSource(_copy_kernel, {"x_ptr": "*fp32", "y_ptr": "*fp32"}, {}, {})
        compile(source, target=GPUTarget("cuda", 90, 32))
