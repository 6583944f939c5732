"""Kernels for practice, one a file: graded as faithfully as the others, and beside the 100 points."""
