"""Times functions of a submission on a GPU.

Its host code is recorded on stand-ins; a process without any of it plays the program on the judge's memory and reads
CUDA's own clock, around a whole row of calls on inputs that nobody has seen before (protocol/timed.py). Ratios to peers
come of turns in one session.
"""
