"""Right operators of torch.library, registered in other ways than the solution's."""
