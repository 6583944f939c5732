"""Triton constructs, each a tiny kernel: whether it compiles, and what it gives on a GPU and in the simulator.

verdicts.py has those that the compiler takes or refuses, checks/ what the simulator promises beyond both. The rest are
run on a GPU and in the simulator:

    python -m assignment.tests.constructs --device cuda --out h200.safetensors
    python -m assignment.tests.constructs --device cpu --inputs h200.safetensors --out cpu.safetensors

The file holds every construct's inputs and outputs, and the tolerance for the simulator. The file
from an H200 is committed as test data, so that the simulator can be compared with the GPU on
machines without one. A construct that has a definition is compared with that instead.
"""
