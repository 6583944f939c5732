"""What staff keep of each operator."""
