"""A table of Triton constructs, each a tiny kernel with stated inputs, run on a GPU and in the simulator.

    python -m assignment.tests.constructs --device cuda --out h200.safetensors
    python -m assignment.tests.constructs --device cpu --inputs h200.safetensors --out cpu.safetensors

The file holds every construct's inputs and outputs, and how close the simulator must come. The one from an H200 is
committed as a test's data, so that the simulator is compared with the GPU on machines that have none. A construct with
a definition of its own is compared with that instead.
"""
