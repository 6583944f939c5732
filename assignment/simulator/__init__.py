"""A faithful CPU device for Triton kernels.

Triton's own interpreter runs kernels on the CPU with NumPy, but gets many numbers wrong: bfloat16 is multiplied as
integers, `tl.dot` ignores TF32, loop variables are Python ints. This package keeps the interpreter's plan (run the
kernel as Python, once per program) and replaces its parts:

    numerics    what NumPy must do differently to give the GPU's bits: types, roundings, TF32
    builder     one method per Triton IR operation, on NumPy arrays; elementwise and libdevice hold most of them
    semantic    Triton's typing rules, without a compiler's bookkeeping
    memory      load, store and atomic by masks: the only place that touches tensors
    watch       checks and counts every access of a launch: `regions` knows which tensor an address belongs to and
                `layout` which addresses are elements, `races` what happened before what (marked in a `shadow` of the
                memory; `acquired` tells which atomics a program looked at), `undefined` what nobody wrote, `trace` the
                bytes; `faults` are its verdicts, and `calls` gathers them by call
    costs       what PyTorch moves between launches, and the sum of it all
    reductions  tl.reduce and tl.associative_scan as trees
    language    binds `triton.language` to the builder
    rewrite     gives a kernel's Python the meaning that Triton's compiler gives it: `rewriter` goes through its syntax
                tree, `scopes` tells what is bound where, `control` and `variables` are what it calls
    arguments   types the arguments of a launch
    launch      runs the programs of a grid
    autotune    takes the first fitting configuration instead of timing all
    device      stands for the GPU: `host` answers where host code asks about it, as the `gpu` it is told; fresh memory
                is NaN
    script      runs a script (`python -m assignment.simulator`): `cuda` makes its tensors on the CPU, `frames` finds
                its lines, `unstored` outputs that it uses unwritten; `show` and `plot` print and draw a trace

A worker calls `install()` once, before it imports Triton or a student's module:

    from assignment.simulator import install
    install()
"""

import functools
import os
import sys


@functools.cache
def install() -> None:
    """Make this process run Triton kernels on the CPU, on tensors in ordinary memory.

    Does nothing the second time. Raises RuntimeError if Triton was imported without TRITON_INTERPRET=1: its standard
    library is then already compiled for a GPU.
    """
    loaded = "triton.language" in sys.modules
    os.environ["TRITON_INTERPRET"] = "1"
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a tile's product is too small to share; read with NumPy
    import triton.language as tl
    from triton.runtime.interpreter import InterpretedFunction

    if loaded and not isinstance(tl.sum, InterpretedFunction):
        raise RuntimeError("install() must run before triton is imported, or TRITON_INTERPRET=1 be set before that")

    from . import autotune, device, language, launch

    language.install()
    launch.install()
    autotune.install()
    device.install()
