"""Wrong RMSNorms, each a few edits away from what is in base/."""

from assignment.bank.operators.rmsnorm.bugs import autograd, backward, compiled, eps, forward, memory, unseen

BANKS = (eps, forward, backward, autograd, unseen, memory, compiled)
REASONS = {  # why checks are there that may catch no bug alone, by the end of their names
    "test_rmsnorm.py::test_forward_16_bit": "the checks of cost compare results in bfloat16 too",
    "test_rmsnorm.py::test_backward_traffic": "what reads twice in the bank is wrong as well",
}
# What its chapter teaches: bugs that cost at least a tenth of their problem (tests/test_lessons.py).
LESSONS = {
    "rmsnorm": (
        "forward-no-eps",
        "backward-the-x-term-missing",
        "backward-all-programs-store-to-one-partial-row",
    ),
}
