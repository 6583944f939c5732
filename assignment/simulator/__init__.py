"""A CPU device that runs Triton kernels faithfully.

Triton's own interpreter runs kernels on the CPU with NumPy, but gets many numbers wrong: bfloat16
is multiplied as integers, `tl.dot` ignores TF32, loop variables are Python ints. This package keeps
the interpreter's plan (run the kernel as Python, once per program) and replaces its parts:

    numerics    number formats, roundings and TF32, bit for bit as on the GPU; `dtypes` has all names of types, `scaled`
                the operands of tl.dot_scaled
    builder     one method per Triton IR operation, on NumPy arrays; most are in `elementwise` and `libdevice`
    semantic    Triton's typing rules, without a compiler's bookkeeping
    access      masked load, store and atomic
    watch       makes, checks and counts every access of a launch: `regions` maps addresses to tensors,
                `layout` knows which addresses are elements, `races` orders the accesses (recorded
                in a `shadow` of the memory),
                `undefined` finds unwritten values, `trace` counts bytes, `l2` what a cache would fetch;
                `faults` are the errors, `suspects` their likely causes, and `calls` collects them by call;
                `shapes` says which axis may be meant where two tiles do not fit
    costs       what PyTorch moves between launches, and the total
    draws       what the language leaves open, by the call's seed; `reductions` are tl.reduce and
                tl.associative_scan in the trees that it draws
    alignment   a builder that believes hints, for kernels that have some, by what is `known` when they are compiled
    language    binds `triton.language` to the builder
    rewrite     gives a kernel's Python the meaning that Triton's compiler gives it: `rewriter`
                transforms its syntax tree, `scopes` knows what is bound where, `control` and
                `variables` are what the rewritten code calls, and `rounds` counts the turns of its
                loops; `constants` are noted where they are compared with the compiler's
    arguments   types the arguments of a launch; `kernel_values` are what variables of a kernel hold
    launch      runs the programs of a grid; those that may have to do with each other twice: `meeting` runs them in
                order, then by a schedule, as coroutines (`programs`); `scheduled` are their accesses there, and
                `stores` what others do not see yet
    ranks       several GPUs in one process: launches of all of them run together, and `clocks` says which of their
                accesses are ordered
    ranks       runs launches of several ranks together, `clocks` order what they do; `on_ranks` sets up a call
    autotune    takes the first fitting configuration instead of timing all
    host        stands in for the GPU: Triton's driver; `one_gpu` is torch.cuda with the `properties` of a GPU and
                its `streams`; fresh memory is NaN
    triton_private  what all this takes of Triton beyond its documentation, and where versions differ; `libtriton`
                stands in for its compiled part where there is none, and `kept_triton` fetches the rest there
    script      runs a script (`python -m assignment.simulator`): `cuda` makes its tensors on the CPU, with `autocast`,
                `bodies` does so where modes do not apply, `compiled` is what a launch gives back, `frames` finds lines
                of the script, `unstored` outputs that are used unwritten;
                `pytest_plugin` and `tests_run` do so for tests; `show` prints a trace, and `launch_page` draws what
                a `recording` has kept as `events`, by the data of `model` and the JavaScript in viewer/; `maps` makes
                matrices of tensors

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

    Calling it again does nothing. Raises RuntimeError if Triton was imported without
    TRITON_INTERPRET=1: its standard library is then already compiled for a GPU.
    """
    loaded = "triton.language" in sys.modules
    os.environ["TRITON_INTERPRET"] = "1"
    # a tile's product is too small to share; read with NumPy
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    import triton.language as tl

    from .triton_private import InterpretedFunction, driver  # load Triton

    if loaded and not isinstance(tl.sum, InterpretedFunction):
        raise RuntimeError("install() must run before triton is imported, or TRITON_INTERPRET=1 be set before that")

    from . import autotune, builder, host, language, launch, one_gpu, properties, undefined  # load Triton

    language.install()
    launch.install()
    autotune.install()
    driver.set_active(host.Driver(builder.TARGET, properties.H100))
    one_gpu.answer_questions(properties.H100)
    undefined.fill_fresh_memory()
