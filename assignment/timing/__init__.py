"""Times functions of a submission on a GPU, by a clock that the submission cannot reach.

The grader owns the memory, reads the clock and looks at the results; a worker only calls the function (see
protocol/timed.py). What a call takes is the time of a run of calls on inputs that nobody has seen before, from a start
that the grader gives to a finish that it checks, less the way there and back.

    workloads.py    what is timed: inputs, how they are filled, the bytes and operations it takes, how it is checked
    memory.py       the grader's memory on the GPU, which workers see
    clock.py        one function against another, A B A B
    twins.py        whether results are a library's, bit for bit
    roof.py         what this GPU can do, measured
    peers/          what submissions are compared with
    contestants.py  submission and peers, each in a worker
    bench.py        `grade.py --bench`
    plots.py        its pictures
"""
