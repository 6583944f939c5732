"""The types of elements, by all names that Triton and PyTorch have for them."""

import torch
import triton.language as tl

from .triton_private import type_canonicalisation_dict

TRITON: dict[str, tl.dtype] = {  # "float16", "fp16" and "half" are one; so is "float8_e5m2", which is PyTorch's
    **{name: tl.str_to_ty(short, None) for name, short in type_canonicalisation_dict.items() if short != "void"},
    "void": tl.void,
}
PYTORCH = {name: dtype for name, dtype in vars(torch).items() if isinstance(dtype, torch.dtype)}
MAX_POINTERS = 3


def name_of(dtype: tl.dtype | torch.dtype) -> str:
    """Return the name by which a table has a type; "*fp16" for a pointer to "fp16"."""
    if isinstance(dtype, tl.dtype) and dtype.is_ptr():
        return f"*{name_of(dtype.element_ty)}"
    return dtype.name if isinstance(dtype, tl.dtype) else str(dtype).removeprefix("torch.")


def triton_name(dtype: tl.dtype | torch.dtype | str) -> str:
    """Return the name of the type of elements that `triton.reinterpret` is given; raises KeyError as Triton does."""
    return TRITON[str(dtype).rpartition(".")[2]].name


def triton_type(name: str) -> tl.dtype:
    """Return the type of Triton's with this name; raises KeyError if there is none."""
    element = name.lstrip("*")
    found, n_pointers = TRITON[element], len(name) - len(element)
    if n_pointers > MAX_POINTERS:
        raise KeyError(name)
    for _ in range(n_pointers):
        found = tl.pointer_type(found)
    return found
