"""What can go wrong in products in groups."""

from assignment.operators.misconception import Models

MODELS = {"grouped_matmul": Models([], "handout/grouped_matmul.md#what-goes-wrong", n_inner=2)}
