"""Times functions of a submission on a GPU.

Its host code is recorded on stand-ins; a process without any of it plays the program on the judge's
memory and reads CUDA's own clock, around a whole series of calls on fresh inputs
(calling/timed.py). Ratios to peers come from turns in one session.
"""
