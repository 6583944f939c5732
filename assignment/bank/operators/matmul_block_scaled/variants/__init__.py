"""Right block-scaled products in other styles than the solution's."""
