"""The grader: two processes and what passes between them."""

from assignment.figures.svg import Drawing


def two_processes() -> Drawing:
    """The judge never runs the submission: tensors go over, tensors come back."""
    drawing = Drawing(720, 316, "The grader's two processes: tests and score in one, your kernels in the other")
    drawing.rect(14, 14, 300, 250, "none", "green-line", radius=8, thick=2)
    drawing.text(30, 40, "the grader’s process", bold=True)
    for row, words in enumerate(["inputs, drawn from the seed", "oracle in float64", "comparison and tolerance",
                                 "deadline of each call", "score and report"]):  # fmt: skip
        drawing.box(30, 54 + 40 * row, 268, 32, words, "green", size=12)
    drawing.rect(424, 14, 282, 250, "none", "orange-line", radius=8, thick=2)
    drawing.text(440, 40, "the worker, in a sandbox", bold=True)
    for row, (words, colour) in enumerate(
        [("cs336_kernels/: your code", "orange"), ("simulator, or a GPU", "grey"), ("every access checked", "grey"),
         ("bytes and origins counted", "grey")]
    ):  # fmt: skip
        drawing.box(440, 54 + 40 * row, 250, 32, words, colour, size=12)
    drawing.text(440, 240, "what it says of time and score is ignored", size=12, colour="soft")
    drawing.arrow(316, 92, 422, 92, "green-line", thick=2)
    drawing.text(369, 82, "inputs", anchor="middle", size=12)
    drawing.arrow(422, 152, 316, 152, "orange-line", thick=2)
    drawing.text(369, 142, "results", anchor="middle", size=12)
    drawing.text(369, 176, "as bytes,", anchor="middle", size=12, colour="soft")
    drawing.text(369, 192, "never as code", anchor="middle", size=12, colour="soft")
    drawing.text(14, 292, "A worker that crashes, hangs or exits is replaced, and costs its own checks only.", size=12,
                 colour="soft")  # fmt: skip
    return drawing
