"""Right linear layers with a GELU in other styles than the solution's."""
