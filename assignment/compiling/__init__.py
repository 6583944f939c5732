"""Compiles a submission's kernels for GPUs that are not present, and reports the results.

Host code runs on CPU tensors as it would on a GPU; each launch is recorded instead of run, and then
compiled. Triton needs no GPU for that, and NVIDIA's assembler comes with it.

    targets       the GPUs, as data
    launches      records launches: which kernel, specialised and with which options
    build         compiles what was recorded, in the processes of `compiler_pool`; `warm` prepares the compiler
    kernel        the facts about one compiled kernel, and whether it fits its target
    machine_code  registers and spills, out of the binary; lines of its assembly
    products      which instruction multiplies matrices, and why not the best one
    compiled_constants  constants of kernels as the compiler sees them, beside those that were played
    refusals      the compiler's messages, at the student's line
    advice        what is wrong, in words, and what a student can change
    workload_calls  the calls that are compiled for a submission; `compiled_script` runs a script
    asked         answers another process about one kernel of a script
    cache         results of compilations, cached in the user's cache folder
    launch_report  the report, with a `table`; `listing` writes PTX and SASS with the source beside them
    agreement     compares all this with a GPU

A worker calls `install()` once, in a process without the simulator:

    from assignment.compiling import build, install, launches
    install()
    with launches.recorded(targets.TARGETS["h100"]) as noted:
        rmsnorm_forward(x, weight)
    kernels = build.kernels(noted)
"""

import functools


@functools.cache
def install() -> None:
    """Have launches recorded in this process, and fresh memory filled as in the simulator."""
    from assignment.simulator.undefined import fill_fresh_memory  # loads PyTorch, which `targets` does without

    from . import launches, warm  # likewise

    launches.install()
    fill_fresh_memory()
    warm.up()
