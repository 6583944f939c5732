"""The process that holds the graded inputs and runs kernels on them; it never imports a submission.

source    finds a kernel's definition in the submission's text
syntax    what may stand in it: the wall, with `facades` and `values`
facades   Triton's modules as kernels see them: listed public members only
values    what a kernel's names are bound to, from the recorder's table
bounds    arithmetic on constants that cannot eat the memory
kernels   builds jit functions of all that

memory      the storages of a program by number
arguments   what its operations and launches are given
operations  the operations of PyTorch that are played
labels      where the value of each element comes from; `derivations` says what operations make of that
work        whose work a result is, in words
play        plays a program on graded inputs, in the simulator
compiled    compiles its launches for GPUs that are not here
session     the conversation with the judge
"""
