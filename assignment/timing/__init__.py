"""Times functions of a submission on a GPU, by a clock that the submission cannot reach.

The grader owns the memory, reads the clock and looks at the results; a worker only calls the function (see
grading/timed.py). What a call takes is the slope between K and 2K calls on inputs that nobody has seen before, so that
neither the way there and back nor what is kept from earlier calls counts.

    workloads.py  what is timed: inputs, how they are filled, the bytes and operations it takes, how it is checked
    memory.py     the grader's memory on the GPU, which workers see
    clock.py      one function against another, A B A B
    roof.py       what this GPU can do, measured
    peers.py      what submissions are compared with
"""
