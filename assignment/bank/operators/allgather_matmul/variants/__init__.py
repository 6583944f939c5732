"""Right products of gathered rows in other styles than the solution's."""
