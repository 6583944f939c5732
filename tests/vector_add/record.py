"""Vector addition, the first kernel of all: z = x + y, element by element."""

from tests.operators import Function, Operator, Problem, counted

OPERATOR = Operator(
    name="vector_add",
    file="cs336_kernels/practice/vector_add.py",
    position=1,
    follows="",
    problems=(Problem("vector_add", "Vector addition", "handout/vector_add.md"),),
    functions=(Function("vector_add", "vector_add", inputs=("x", "y"), outputs=("z",), oracle="vector_add"),),
    say=lambda tensors: counted(tensors["x"].numel(), "element", "elements"),
)
