"""Right ways to bias and GELU in other styles than the solution's."""
