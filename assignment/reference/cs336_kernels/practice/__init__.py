"""Kernels for practice, one a file: graded as faithfully as the others, and in no sum."""
