"""Right weighted sums in other styles than the solution's."""
