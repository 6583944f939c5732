"""What can go wrong in a LayerNorm, forward and backward: for all operators that have one in them."""
