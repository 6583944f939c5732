"""What right attention pays for its style; the styles are in styles/."""

PAYS = {  # right, and dearer than it must be: the checks of cost that it loses
    "attention_whole_heads": ("test_flash_forward.py::test_triton_traffic",),  # copies its inputs
    "forward_padded": ("test_flash_forward.py::test_triton_traffic",),  # copies its inputs
    "forward_split_keys": (
        "test_flash_forward.py::test_triton_traffic",
    ),  # each split reads q, and writes an o of its own
    "forward_split_keys_atomics": ("test_flash_forward.py::test_triton_traffic",),
    "forward_two_pass": ("test_flash_forward.py::test_triton_traffic",),  # reads k twice
}
