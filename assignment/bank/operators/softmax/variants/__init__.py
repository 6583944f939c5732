"""Right softmaxes in other styles than the solution's."""
