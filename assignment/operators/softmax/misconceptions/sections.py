"""The sections of the chapter that tell of a wrong softmax."""

FORMULA, GRADIENT = "handout/softmax.md#mathematics", "handout/softmax.md#the-gradient"
ALGORITHM, WRONG = "handout/softmax.md#algorithm", "handout/softmax.md#what-goes-wrong"
