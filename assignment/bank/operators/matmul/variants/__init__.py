"""Right products of matrices in other styles than the solution's."""
