"""The process that imports a submission, runs its host code on decoys and records it as a program.

Kernels are not run here. Allocations, PyTorch operations and launches become a list of steps, which
the player (assignment/player) plays on the graded inputs. The judge trusts nothing that this
process says; it never gets a graded value, an expected value or the seed.

    tape      the steps, recorded by a dispatch mode: storages are numbered, views need no steps; `bodies` does so
              where modes do not apply
    device    answers as a machine with a GPU would: `is_cuda`, "cuda", streams, properties
    launches  records launches instead of making them, autotuned ones with all configurations
    wanted    what host code reads of a kernel that is not compiled yet
    kernels   describes kernels: where their source is, and what the names in it are bound to
    session   one submission: imports it, makes calls, and returns the program; `stubs` are not called twice
    traces    calls with data and without, for what operators of torch.library return; `scripts` run beside a submission
    own_faults  faults of the recorder's own
"""
