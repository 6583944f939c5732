"""Right products in groups in other styles than the solution's."""
