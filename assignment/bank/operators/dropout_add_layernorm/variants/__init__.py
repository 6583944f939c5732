"""Right dropouts with residual and LayerNorm in other styles than the solution's."""

PAYS = {  # right, and dearer than they must be: the checks of cost that they lose
    "dropout_add_layernorm_two_kernels": (  # the sum first, as tutorial 07 would, then LayerNorm
        "test_dropout_add_layernorm.py::test_backward_traffic",
    ),
}
