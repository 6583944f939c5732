"""Wrong weighted sums, each a few edits away from what is in base/."""

from assignment.bank.operators.weighted_sum.bugs import (
    autograd,
    backward,
    compiled,
    forward,
    left_open,
    memory,
    together,
    unseen,
)

BANKS = (forward, backward, autograd, unseen, memory, compiled, left_open, together)
# What its chapter teaches: bugs that cost at least a tenth of their problem (tests/test_lessons.py).
LESSONS = {
    "weighted_sum": (
        "forward-columns-past-the-end-of-x-unmasked",
        "backward-rows-past-the-end-of-x-unmasked",
        "backward-grad-weight-added-to-without-atomics",
    ),
}
