"""Right LayerNorms in other styles than the solution's."""

PAYS = {  # right, and dearer than they must be: the checks of cost that they lose
    "layernorm_tutorial": ("test_layernorm.py::test_forward_traffic",),  # three walks along every row
    "layernorm_welford": ("test_layernorm.py::test_backward_traffic",),  # grad_weight and grad_bias in a kernel apart
}
