"""Accesses out of bounds, and the tensors that they may reach."""

# mypy: disable-error-code="attr-defined"
# (in a kernel a loop variable is a tensor)

import resource
import warnings

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from assignment.simulator import calls
from assignment.simulator.faults import InputWritten, OutOfBounds, Race, Unwritten
from assignment.simulator.triton_private import HAS_BLOCK_POINTERS
from assignment.tests.constructs.checks.common import raised, says


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, first, SIZE: tl.constexpr):
    at = first + tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)  # the load
    tl.store(y_ptr + at, x, mask=(at < n) & (at >= 0))


@triton.jit
def rows_kernel(x_ptr, y_ptr, stride, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows, cols = tl.arange(0, ROWS), tl.arange(0, COLS)
    mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    x = tl.load(x_ptr + rows[:, None] * stride + cols[None, :], mask=mask, other=0.0)
    tl.store(y_ptr + rows, tl.sum(x, 1), mask=rows < n_rows)


def check_past_the_end():
    """A load past the end names kernel, file, line, source, program, tensor, index and lanes."""
    x, y = torch.ones(100), torch.zeros(256)
    fault = raised(OutOfBounds, copy_kernel[(2,)], x, y, 120, 0, SIZE=64)
    says(fault, "out of bounds: program (1, 0, 0) of copy_kernel loads x_ptr[100]", "float32 (100,), strides (1,)")
    says(
        fault,
        "checks/bounds.py:23 in copy_kernel: x = tl.load(x_ptr + at",
        "20 of 56 active lanes: 20 past its last",
    )


@triton.jit
def load_rows(x_ptr, at, n):
    return tl.load(x_ptr + at, mask=at < n, other=0.0)


def check_helpers_name_their_callers():
    """A fault in a device function names the line that called it as well; rows past the end are told from batches."""

    @triton.jit
    def kernel(x_ptr, y_ptr, n, SIZE: tl.constexpr):
        tl.store(y_ptr + tl.arange(0, SIZE), load_rows(x_ptr, tl.arange(0, SIZE), n))  # the caller

    x, y = torch.ones(2, 5, 6), torch.zeros(64)
    fault = raised(OutOfBounds, kernel[(1,)], x, y, 61, SIZE=64)
    says(fault, "x_ptr[2, 0, 0], or x_ptr[1, 5, 0], but", "in load_rows: return tl.load", "called from", "# the caller")


def check_padding_between_rows():
    """What lies between the rows of a sliced tensor is nobody's to read, a script's own tensor or a caller's."""
    whole = torch.ones(8, 16)
    x, y = whole[:, :12], torch.zeros(8)
    rows_kernel[(1,)](x, y, 16, 8, 12, ROWS=8, COLS=16)
    says(raised(OutOfBounds, rows_kernel[(1,)], x, y, 16, 8, 16, ROWS=8, COLS=16), "x_ptr[0, 12]", "between its el")
    with calls.Call([x]):
        says(raised(OutOfBounds, rows_kernel[(1,)], x, y, 16, 8, 13, ROWS=8, COLS=16), "7 in gaps between its elements")


def check_an_index_without_its_stride():
    """An offset between two columns would be given the name of the first of them."""
    x = torch.ones(4, 32)[:, ::2]
    fault = raised(OutOfBounds, rows_kernel[(1,)], x, torch.zeros(4), 32, 4, 16, ROWS=4, COLS=16)
    says(fault, "x_ptr[0, 0]", "beside that element", "its own stride of (32, 2)")


def check_an_offset_of_32_bits():
    """Row times stride is beyond 2³¹ elements, and comes out negative."""

    @triton.jit
    def kernel(x_ptr, y_ptr, stride, SIZE: tl.constexpr):
        tl.store(y_ptr + tl.arange(0, SIZE), tl.load(x_ptr + tl.arange(0, SIZE) * stride))

    x = torch.empty(1 << 32, dtype=torch.int8).as_strided((4,), (1 << 30,))  # memory that nobody touches
    fault = raised(OutOfBounds, kernel[(1,)], x, torch.zeros(4, dtype=torch.int8), x.stride(0), SIZE=4)
    says(fault, "an offset of 32 bits has wrapped around", ".to(tl.int64)")


def check_a_view_reaches_its_tensor():
    """q[0] and a batch stride reach all of q; x[1:] reaches the row before."""
    q, y = torch.arange(24.0).view(2, 3, 4), torch.zeros(6)
    for inputs in ([], [q]):
        with calls.Call(inputs):
            rows_kernel[(1,)](q[0], y, 4, 6, 4, ROWS=8, COLS=4)
            assert torch.equal(y, q.sum(-1).flatten())
            raised(OutOfBounds, rows_kernel[(1,)], q[0], torch.zeros(8), 4, 7, 4, ROWS=8, COLS=4)
            copy_kernel[(1,)](q.view(6, 4)[1:], torch.zeros(30)[8:], 4, -4, SIZE=8)


def check_another_tensor_is_no_excuse():
    """An address inside of another tensor, even of one on the same storage, is out of bounds."""
    both = torch.ones(128)
    x, neighbour = both.clone()[:64].clone(), both[64:]
    with calls.Call([both[:64], neighbour]):
        raised(OutOfBounds, copy_kernel[(1,)], both[:64], torch.zeros(128), 65, 0, SIZE=128)
    distance = (neighbour.data_ptr() - x.data_ptr()) // 4
    raised(OutOfBounds, copy_kernel[(1,)], x, torch.zeros(128), distance + 64, distance, SIZE=64)


def check_layouts_that_fit():
    """Transposed, expanded and interleaved tensors are read without a complaint, and no further."""

    @triton.jit
    def strided_kernel(x_ptr, y_ptr, stride_r, stride_c, ROWS: tl.constexpr, COLS: tl.constexpr):
        rows, cols = tl.arange(0, ROWS), tl.arange(0, COLS)
        x = tl.load(x_ptr + rows[:, None] * stride_r + cols[None, :] * stride_c)
        tl.store(y_ptr + rows[:, None] * COLS + cols[None, :], x)

    base = torch.arange(512.0)
    views = [base[:128].view(16, 8).T, base[:8, None].expand(8, 16), base[:16].expand(8, 16)]
    views += [base.as_strided((8, 16), (16, 2)), base.as_strided((8, 16), (6, 4)), base.as_strided((8, 16), (1, 1))]
    for x in views:
        with calls.Call([x]):
            y = torch.zeros(8, 16)
            strided_kernel[(1,)](x, y, *x.stride(), ROWS=8, COLS=16)
            assert torch.equal(x, y)
            raised(OutOfBounds, strided_kernel[(1,)], x[:7, :15], y, 33, 33, ROWS=8, COLS=16)


def check_tensors_without_dimensions():
    """Their one element has the tensor's name, what lies beside it an index, and a type too wide for it is told."""

    @triton.jit
    def kernel(x_ptr, y_ptr, at, HOW: tl.constexpr):
        if HOW == "load":
            tl.store(y_ptr, tl.load(x_ptr + at))
        elif HOW == "wide":
            tl.store(y_ptr.to(tl.pointer_type(tl.float64)), 1.0)
        else:
            tl.store(y_ptr + at, tl.program_id(0))

    x, y = torch.tensor(2.0), torch.zeros(())
    kernel[(1,)](x, y, 0, HOW="load")
    assert y.item() == 2
    for at, where in ((1, "past its last"), (-1, "before its first")):
        says(raised(OutOfBounds, kernel[(1,)], x, y, at, HOW="load"), f"loads x_ptr[{at}], but", "float32 ()", where)
        says(raised(OutOfBounds, kernel[(1,)], x, y, at, HOW="store"), f"stores to y_ptr[{at}], but", where)
    says(raised(OutOfBounds, kernel[(1,)], x, y, 0, HOW="wide"), "stores to y_ptr, but y_ptr is float32 ()")
    says(raised(Race, kernel[(2,)], x, y, 0, HOW="store"), "both touch y_ptr\n")
    says(raised(Unwritten, kernel[(1,)], torch.empty(()), y, 0, HOW="load"), "loads x_ptr, which was never written")
    with calls.Call([x]):
        says(raised(InputWritten, kernel[(1,)], x, x, 0, HOW="store"), "stores to y_ptr, which is argument 0")


def check_stores_and_atomics():
    """Neither writes a single element when one of its lanes is outside."""

    @triton.jit
    def write_kernel(y_ptr, SIZE: tl.constexpr, IS_ATOMIC: tl.constexpr):
        if IS_ATOMIC:
            tl.atomic_add(y_ptr + tl.arange(0, SIZE), 1.0)
        else:
            tl.store(y_ptr + tl.arange(0, SIZE), 1.0)

    y = torch.zeros(15)
    says(raised(OutOfBounds, write_kernel[(1,)], y, SIZE=16, IS_ATOMIC=False), "stores to y_ptr[15]", "past its last")
    says(raised(OutOfBounds, write_kernel[(1,)], y, SIZE=16, IS_ATOMIC=True), "updates y_ptr[15]")
    assert not y.any()


def check_descriptors_and_block_pointers():
    """A descriptor hides what is outside of the shape it was told, which may be more than there is."""

    @triton.jit
    def descriptor_kernel(x_desc, y_ptr):
        tl.store(y_ptr, tl.sum(x_desc.load([4, 0])))

    @triton.jit
    def block_kernel(x_ptr, y_ptr, IS_CHECKED: tl.constexpr):
        block = tl.make_block_ptr(x_ptr, (5, 8), (8, 1), (0, 0), (8, 8), (1, 0))
        if IS_CHECKED:
            tl.store(y_ptr, tl.sum(tl.load(block, boundary_check=(0, 1), padding_option="zero")))
        else:
            tl.store(y_ptr, tl.sum(tl.load(block)))

    x, y = torch.ones(5, 8), torch.zeros(1)
    descriptor_kernel[(1,)](TensorDescriptor(x, (5, 8), (8, 1), [8, 8]), y)
    assert y.item() == 8
    wrong = TensorDescriptor(x, (6, 8), (8, 1), [8, 8])
    says(raised(OutOfBounds, descriptor_kernel[(1,)], wrong, y), "x_desc[5, 0]", "descriptor_kernel: tl.store")
    if not HAS_BLOCK_POINTERS:
        removed = raised(NotImplementedError, block_kernel[(1,)], x, y, IS_CHECKED=True)
        says(removed, "tl.make_block_ptr was removed in Triton 3.9: write pointers and masks", "handout/faq.md")
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # block pointers are deprecated
        block_kernel[(1,)](x, y, IS_CHECKED=True)
        raised(OutOfBounds, block_kernel[(1,)], x, y, IS_CHECKED=False)


def check_addresses_as_integers():
    """A kernel may be handed an address; it must be that of a tensor. Pointers may be mixed in one block."""

    @triton.jit
    def address_kernel(address, y_ptr):
        x_ptr = address.to(tl.pointer_type(tl.float32))
        tl.store(y_ptr, tl.load(x_ptr + 3))

    @triton.jit
    def mixed_kernel(x_ptr, y_ptr, z_ptr):
        at = tl.arange(0, 8)
        tl.store(z_ptr + at, tl.load(tl.where(at < 4, x_ptr + at, y_ptr + at)))

    x, y, z = torch.arange(4.0), torch.zeros(8), torch.zeros(8)
    address_kernel[(1,)](x.data_ptr(), y)
    assert y[0].item() == 3
    says(raised(OutOfBounds, address_kernel[(1,)], 2**40, y), "of no tensor")
    mixed_kernel[(1,)](x, y, z)
    assert z.tolist() == [0, 1, 2, 3, 0, 0, 0, 0]
    raised(OutOfBounds, mixed_kernel[(1,)], x[:3].clone(), y, z)


def check_arrays_of_pointers():
    """Addresses that a kernel loads from memory belong to tensors like all others."""

    @triton.jit
    def kernel(pointers_ptr, y_ptr, SIZE: tl.constexpr):
        program = tl.program_id(0)
        x_ptr = tl.load(pointers_ptr + program).to(tl.pointer_type(tl.float32))
        tl.store(y_ptr + program, tl.sum(tl.load(x_ptr + tl.arange(0, SIZE))))

    tensors, y = [torch.full((16,), float(i)) for i in range(3)], torch.empty(3)
    pointers = torch.tensor([x.data_ptr() for x in tensors])
    kernel[(3,)](pointers, y, SIZE=16)
    assert y.tolist() == [0, 16, 32]
    says(raised(OutOfBounds, kernel[(3,)], pointers, y, SIZE=32), "of no tensor")


def check_views_of_other_types():
    """One workspace seen as several types: what is disjoint is no race, and what overlaps is one."""

    @triton.jit
    def kernel(a_ptr, b_ptr, SIZE: tl.constexpr):
        at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
        tl.store(a_ptr + at, 1)
        tl.store(b_ptr + at, 2.0)

    workspace = torch.zeros(8192, dtype=torch.uint8)
    kernel[(8,)](workspace[512:1536].view(torch.int8), workspace[4096:].view(torch.float32), SIZE=128)
    kernel[(8,)](workspace[:1024], workspace[2048:].view(torch.float16), SIZE=128)
    raised(Race, kernel[(8,)], workspace.view(torch.int32), workspace.view(torch.float16), SIZE=128)

    @triton.jit
    def halves_kernel(x_ptr, SIZE: tl.constexpr):
        half_ptr = x_ptr.to(tl.pointer_type(tl.int16))
        tl.store(half_ptr + 2 * tl.arange(0, SIZE) + tl.program_id(0), 3 + tl.program_id(0))

    halves_kernel[(2,)](torch.zeros(16), SIZE=16)
    raised(Race, halves_kernel[(3,)], torch.zeros(18), SIZE=16)


def check_slices_of_one_workspace():
    """A store that runs over from one argument into another is out of bounds."""
    workspace = torch.zeros(256)

    @triton.jit
    def kernel(a_ptr, b_ptr, SIZE: tl.constexpr):
        at = tl.arange(0, SIZE)
        tl.store(a_ptr + at, 1.0)
        tl.store(b_ptr, 2.0)

    for inputs in ([], [torch.zeros(1)]):
        with calls.Call(inputs):
            raised(OutOfBounds, kernel[(1,)], workspace[:100], workspace[100:], SIZE=128)
            kernel[(1,)](workspace[:128], workspace[128:], SIZE=128)


def check_padding_of_ones_own():
    """Host code may pad a buffer of its own, pass a part of it and let tiles reach into the rest."""

    @triton.jit
    def kernel(y_ptr, stride, SIZE: tl.constexpr):
        at = tl.arange(0, SIZE)
        tl.store(y_ptr + at[:, None] * stride + at[None, :], 1.0)

    with calls.Call([torch.zeros(1)]):
        buffer = torch.empty(16, 16)
        kernel[(1,)](buffer[:10, :10], 16, SIZE=16)
        kernel[(1,)](torch.empty(256)[:100].view(10, 10), 16, SIZE=16)
        raised(OutOfBounds, kernel[(1,)], torch.empty(250)[:100].view(10, 10), 16, SIZE=16)


def check_huge_strided_views():
    """A view over gigabytes is read, written and checked in memory for its elements alone."""
    storage = torch.UntypedStorage(8 << 30)
    far = torch.empty(0).set_(storage, 0, (4, 8), (2**29 + 64, 1))
    far.copy_(torch.arange(32.0).view(4, 8))
    before, y = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, torch.zeros(4)
    rows_kernel[(1,)](far, y, far.stride(0), 4, 8, ROWS=4, COLS=8)
    assert torch.equal(y, far.sum(-1))
    says(raised(OutOfBounds, rows_kernel[(1,)], far, y, far.stride(0), 4, 9, ROWS=4, COLS=16), "x_ptr[0, 8]", "between")
    copy_kernel[(2,)](torch.ones(8), far[3], 8, 0, SIZE=4)
    assert far[3].eq(1).all()
    rows_kernel[(1,)](far[0], y, far.stride(0), 4, 8, ROWS=4, COLS=8)
    assert torch.equal(y, far.sum(-1))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kilobytes


def check_nothing_to_touch():
    """An empty tensor is no fault where every lane is masked out."""
    copy_kernel[(1,)](torch.ones(0), torch.zeros(0), 0, 0, SIZE=16)


def check_caught_faults_are_remembered():
    """Host code that swallows the exception does not hide the fault."""
    with calls.Call() as seen:
        raised(OutOfBounds, copy_kernel[(1,)], torch.ones(4), torch.zeros(8), 8, 0, SIZE=8)
    assert len(seen.faults) == 1
