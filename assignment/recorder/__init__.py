"""The process that imports a submission: runs its host code on decoys and writes down what it did, as a program.

Kernels are not run here. What memory is made, what PyTorch computes and what is launched becomes a list of steps, which
the player (assignment/player) plays on the graded inputs. Nothing that this process says is believed; it never gets a
graded value, an expected value or the seed.

    tape      the steps, as a dispatch mode hears of them: storages are numbered, views need no steps
    device    answers as a machine with a GPU would: `is_cuda`, "cuda", streams, properties
    launches  notes launches instead of making them, autotuned ones with all their configurations
    kernels   describes kernels: where their source stands, and what the names in it are bound to
    session   one submission: imports it, makes calls, and hands out the program
"""
