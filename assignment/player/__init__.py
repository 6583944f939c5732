"""The process that holds the graded inputs and runs kernels on them; it never imports a submission.

source    finds a kernel's definition in the submission's text
syntax    the allow-list of what may stand in it, with `facades` and `values`
facades   Triton's modules as kernels see them: listed public members only
values    what a kernel's names are bound to, from the recorder's table
bounds    limits arithmetic on constants, so that it cannot exhaust memory
kernels   builds jit functions from all that

memory      the storages of a program by number
arguments   the arguments of its operations and launches
operations  the operations of PyTorch that are played
labels      where the value of each element comes from; `derivations` applies operations to that
work        whether a result was computed by kernels, with reasons
play        plays a program on graded inputs, in the simulator
compiled    compiles its launches for GPUs that are not present
session     the conversation with the judge
"""
