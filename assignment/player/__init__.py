"""The process that holds the graded inputs and runs kernels on them; it never imports a submission.

source          finds a kernel's definition in the submission's text; `lines` shows lines of it
syntax          the allow-list of what may stand in it, with `facades` and `values`
facades         Triton's modules as kernels see them: listed public members only
values          what a kernel's names are bound to, from the recorder's `kernel_table`
bounds          limits arithmetic on constants, so that it cannot exhaust memory
functions       makes functions of checked definitions
kernel_builder  builds jit functions from all that; `counterparts` says what Triton has in place of a PyTorch name

storages        the storages of a program by number
arguments       the arguments of its operations and launches
operations      the operations of PyTorch that are played; `misuse` looks at their arguments
labels          where the value of each element comes from; `known_values` keeps them, `derivations` derives more
work            whether a result was computed by kernels, with reasons
play            plays a program on graded inputs, in the simulator; `missing_results` says what no program stored
ranks           plays the programs of several ranks together, on one symmetric heap
gpu_player      plays it on a GPU; `prepared` ones many times, and one rank's beside others by `gpu_ranks`
launch_compiler  compiles its launches for GPUs that are not present
session         the conversation with the judge
"""
