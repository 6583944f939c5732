"""From the outcomes of cases to the score: which checks there are, what each earns, and what is told of it."""
