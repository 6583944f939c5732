"""Right additions in other styles than the solution's."""
