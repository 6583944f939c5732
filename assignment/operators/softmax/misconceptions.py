"""What can go wrong in a softmax, forward and backward."""

MODELS = {}
