"""Right RMSNorms in other styles than the solution's."""

PAYS = {  # right, and dearer than it must be: the checks of cost that it loses
    "rmsnorm_descriptors": (
        "test_rmsnorm.py::test_forward_traffic",
        "test_rmsnorm.py::test_backward_traffic",
    ),  # rows in two passes
    "rmsnorm_two_kernels": ("test_rmsnorm.py::test_backward_traffic",),  # grad_weight in a kernel of its own
}
DOUBTED = {"rmsnorm_cleaned_sums"}  # right, and for staff to look at
