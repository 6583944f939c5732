"""What the simulator says of memory: run by test_simulator.py in a process of its own, like simulated.py."""

# mypy: disable-error-code="attr-defined"

import math
import resource
import warnings

if __name__ == "__main__":
    from assignment.simulator import install

    install()

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from assignment.simulator import calls
from assignment.simulator.faults import InputWritten, OutOfBounds, Race, Unwritten
from assignment.simulator.undefined import unwritten_in
from assignment.tests.data.simulated import raised, run_checks


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


def says(fault: Exception, *parts: str) -> None:
    for part in parts:
        assert part in str(fault), f"{part!r} is not in:\n{fault}"


# bounds


def check_past_the_end():
    """A load past the end names kernel, file, line, source, program, tensor, index and lanes."""
    x, y = torch.ones(100), torch.zeros(256)
    fault = raised(OutOfBounds, copy_kernel[(2,)], x, y, 120, 0, SIZE=64)
    says(fault, "out of bounds: program (1, 0, 0) of copy_kernel loads x_ptr[100]", "float32 (100,), strides (1,)")
    says(fault, "data/watched.py:28 in copy_kernel: x = tl.load(x_ptr + at", "20 of 56 active lanes: 20 past its last")


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


def check_before_the_start():
    """A negative index is told from one that is too large."""
    fault = raised(OutOfBounds, copy_kernel[(1,)], torch.ones(100), torch.zeros(100), 100, -3, SIZE=64)
    says(fault, "x_ptr[-3]", "3 of 64 active lanes: 3 before its first element")


def check_padding_between_rows():
    """What lies between the rows of a sliced tensor is nobody's to read, a script's own tensor or a caller's."""
    whole = torch.ones(8, 16)
    x, y = whole[:, :12], torch.zeros(8)
    rows_kernel[(1,)](x, y, 16, 8, 12, ROWS=8, COLS=16)
    says(raised(OutOfBounds, rows_kernel[(1,)], x, y, 16, 8, 16, ROWS=8, COLS=16), "x_ptr[0, 12]", "between its el")
    with calls.call([x]):
        says(raised(OutOfBounds, rows_kernel[(1,)], x, y, 16, 8, 13, ROWS=8, COLS=16), "7 between its elements")


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
        with calls.call(inputs):
            rows_kernel[(1,)](q[0], y, 4, 6, 4, ROWS=8, COLS=4)
            assert torch.equal(y, q.sum(-1).flatten())
            raised(OutOfBounds, rows_kernel[(1,)], q[0], torch.zeros(8), 4, 7, 4, ROWS=8, COLS=4)
            copy_kernel[(1,)](q.view(6, 4)[1:], torch.zeros(30)[8:], 4, -4, SIZE=8)


def check_another_tensor_is_no_excuse():
    """An address inside of another tensor, even of one on the same storage, is out of bounds."""
    both = torch.ones(128)
    x, neighbour = both.clone()[:64].clone(), both[64:]
    with calls.call([both[:64], neighbour]):
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
        with calls.call([x]):
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
    with calls.call([x]):
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
        with calls.call(inputs):
            raised(OutOfBounds, kernel[(1,)], workspace[:100], workspace[100:], SIZE=128)
            kernel[(1,)](workspace[:128], workspace[128:], SIZE=128)


def check_padding_of_ones_own():
    """Host code may pad a buffer of its own, pass a part of it and let tiles reach into the rest."""

    @triton.jit
    def kernel(y_ptr, stride, SIZE: tl.constexpr):
        at = tl.arange(0, SIZE)
        tl.store(y_ptr + at[:, None] * stride + at[None, :], 1.0)

    with calls.call([torch.zeros(1)]):
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
    with calls.call() as seen:
        raised(OutOfBounds, copy_kernel[(1,)], torch.ones(4), torch.zeros(8), 8, 0, SIZE=8)
    assert len(seen.faults) == 1


# races


@triton.jit
def accumulate_kernel(y_ptr, IS_ATOMIC: tl.constexpr):
    if IS_ATOMIC:
        tl.atomic_add(y_ptr, 1.0)
    else:
        old = tl.load(y_ptr)
        tl.store(y_ptr, old + 1.0)


@triton.jit
def same_kernel(y_ptr, VALUE: tl.constexpr):
    tl.store(y_ptr, tl.program_id(0) if VALUE < 0 else VALUE)


def check_two_programs_store():
    """Both programs and both lines are named; one identical value is only worth a warning."""
    fault = raised(Race, same_kernel[(2,)], torch.zeros(1), VALUE=-1)
    says(fault, "of same_kernel both touch y_ptr[0]", "(0, 0, 0)", "(1, 0, 0)", "in same_kernel: tl.store(y_ptr")
    with calls.call() as seen:
        same_kernel[(5,)](torch.zeros(1), VALUE=7)
    assert len(seen.warnings) == 1
    says(Exception(seen.warnings[0]), "same value stored: programs", "in same_kernel")


def check_out_of_bounds_before_a_race():
    """One missing bound leaves the last row's tensor, and lets all other rows race; whichever program comes first."""

    @triton.jit
    def kernel(x_ptr, y_ptr, n_cols, SIZE: tl.constexpr):
        row, cols = tl.program_id(0), tl.arange(0, SIZE)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
        tl.store(y_ptr + row * n_cols + cols, x + row)  # no mask

    for seed in range(5):
        with calls.call(seed=seed):
            fault = raised(OutOfBounds, kernel[(8,)], torch.ones(8, 10), torch.zeros(8, 10), 10, SIZE=16)
            says(fault, "program (7, 0, 0) of kernel stores to y_ptr[8, 0]", "# no mask")
    raised(Race, kernel[(7,)], torch.ones(8, 10), torch.zeros(8, 10), 10, SIZE=16)


def check_an_empty_grid_is_remembered():
    """A grid of n // SIZE programs, where n is smaller."""
    with calls.call() as seen:
        copy_kernel[(10 // 64,)](torch.ones(10), torch.zeros(10), 10, 0, SIZE=64)
    assert seen.empty_grids == ["copy_kernel was launched with the grid (0, 1, 1), which is 0 programs"]


def check_storing_what_is_there():
    """A store that changes nothing is no race with a load, whoever comes first."""

    @triton.jit
    def kernel(x_ptr, y_ptr, VALUE: tl.constexpr):
        if tl.program_id(0) == 0:
            tl.store(x_ptr, VALUE)
        else:
            tl.store(y_ptr + tl.program_id(0), tl.load(x_ptr))

    for seed in range(8):
        with calls.call(seed=seed) as seen:
            kernel[(4,)](torch.zeros(1), torch.zeros(4), VALUE=0.0)
            assert len(seen.warnings) == 1
            raised(Race, kernel[(4,)], torch.zeros(1), torch.zeros(4), VALUE=1.0)


def check_load_add_store():
    """Adding to another program's sum is a race unless it is atomic."""
    y = torch.zeros(1)
    says(raised(Race, accumulate_kernel[(2,)], y, IS_ATOMIC=False), "loads it", "stored to it")
    y.zero_()
    accumulate_kernel[(100,)](y, IS_ATOMIC=True)
    assert y.item() == 100
    accumulate_kernel[(1,)](y, IS_ATOMIC=False)


def check_lanes_of_one_program():
    """Two lanes that store different values to one element are a race within the program."""

    @triton.jit
    def kernel(y_ptr, stride, factor, SIZE: tl.constexpr):
        at = tl.arange(0, SIZE)
        tl.store(y_ptr + at * stride, at * factor)

    for stride, factor in ((1, 1), (1, 0), (0, 0)):
        kernel[(1,)](torch.zeros(8), stride, factor, SIZE=8)
    says(raised(Race, kernel[(1,)], torch.zeros(8), 0, 2, SIZE=8), "two lanes of program (0, 0, 0)", "y_ptr[0]")


def check_plain_store_beside_atomics():
    """A store by one program and atomics by others are a race, in any order."""

    @triton.jit
    def kernel(y_ptr):
        if tl.program_id(0) == 1:
            tl.store(y_ptr, 0.0)
        else:
            tl.atomic_add(y_ptr, 1.0)

    for seed in range(8):
        with calls.call(seed=seed):
            raised(Race, kernel[(3,)], torch.zeros(1))


def check_reading_a_neighbour():
    """Updating in place what the next program reads is a race, whoever comes first."""

    @triton.jit
    def kernel(y_ptr):
        at = tl.program_id(0)
        y = tl.load(y_ptr + at) + tl.load(y_ptr + at + 1)
        tl.store(y_ptr + at, y)

    for seed in range(8):
        with calls.call(seed=seed):
            raised(Race, kernel[(2,)], torch.arange(3.0))
    kernel[(1,)](torch.arange(3.0))


def check_one_tensor_under_two_names():
    """A race through two arguments that are the same memory."""

    @triton.jit
    def kernel(a_ptr, b_ptr):
        at = tl.program_id(0)
        tl.store(a_ptr + at, tl.load(b_ptr + 1 - at) + 1.0)

    y = torch.zeros(2)
    raised(Race, kernel[(2,)], y, y)


@triton.jit
def locked_kernel(lock_ptr, y_ptr, HAS_LOCK: tl.constexpr):
    if HAS_LOCK:
        while tl.atomic_cas(lock_ptr, 0, 1) == 1:
            pass
    y = tl.load(y_ptr + tl.arange(0, 4))
    tl.store(y_ptr + tl.arange(0, 4), y + 1.0)
    if HAS_LOCK:
        tl.atomic_xchg(lock_ptr, 0)


@triton.jit
def last_block_kernel(partial_ptr, counter_ptr, y_ptr, SEM: tl.constexpr, IS_LATE: tl.constexpr):
    program = tl.program_id(0)
    if not IS_LATE:
        tl.store(partial_ptr + program, program + 1.0)
    done = tl.atomic_add(counter_ptr, 1, sem=SEM)
    if IS_LATE:
        tl.store(partial_ptr + program, program + 1.0)
    if done == tl.num_programs(0) - 1:
        tl.store(y_ptr, tl.sum(tl.load(partial_ptr + tl.arange(0, 4))))


def check_locks_and_counters():
    """A lock orders what it guards; a counter orders what came before it, and nothing that comes after."""
    lock, y = torch.zeros(1, dtype=torch.int32), torch.zeros(4)
    locked_kernel[(5,)](lock, y, HAS_LOCK=True)
    assert y.eq(5).all()
    raised(Race, locked_kernel[(5,)], lock, y, HAS_LOCK=False)
    for seed in range(4):
        with calls.call(seed=seed):
            last_block_kernel[(4,)](torch.zeros(4), torch.zeros_like(lock), y, SEM="acq_rel", IS_LATE=False)
            assert y[0].item() == 10
            raised(Race, last_block_kernel[(4,)], torch.zeros(4), torch.zeros_like(lock), y, "relaxed", False)
            raised(Race, last_block_kernel[(4,)], torch.zeros(4), torch.zeros_like(lock), y, "acq_rel", True)


def check_what_is_no_lock():
    """A lock that is tried once, one without acquire or release, and a sum over a block guard nothing."""

    @triton.jit
    def kernel(lock_ptr, y_ptr, HOW: tl.constexpr):
        if HOW == "tried":
            tl.atomic_cas(lock_ptr, 0, 1)
        elif HOW == "block":
            tl.atomic_add(lock_ptr + tl.arange(0, 2), 1)
        elif HOW == "release":
            while tl.atomic_cas(lock_ptr, 0, 1, sem="release") == 1:
                pass
        else:
            while tl.atomic_cas(lock_ptr, 0, 1) == 1:
                pass
        tl.store(y_ptr, tl.load(y_ptr) + 1.0)
        if HOW == "acquire":
            tl.atomic_xchg(lock_ptr, 0, sem="acquire")
        elif HOW != "block":
            tl.atomic_xchg(lock_ptr, 0)

    @triton.jit
    def tried_kernel(lock_ptr, y_ptr):
        if tl.atomic_cas(lock_ptr, 0, 1) == 0:
            tl.store(y_ptr, tl.load(y_ptr) + 1.0)
            tl.atomic_xchg(lock_ptr, 0)

    for how in ("block", "release", "acquire"):
        raised(Race, kernel[(3,)], torch.zeros(2, dtype=torch.int32), torch.zeros(1), HOW=how)
    raised(Race, tried_kernel[(3,)], torch.zeros(1, dtype=torch.int32), torch.zeros(1))
    kernel[(3,)](torch.zeros(2, dtype=torch.int32), torch.zeros(1), HOW="")


@triton.jit
def bracketed_kernel(count_ptr, y_ptr, before_ptr, HOW: tl.constexpr):
    before = tl.atomic_add(count_ptr, 1)
    if HOW == "kept":
        tl.store(before_ptr + tl.program_id(0), before)
    elif HOW == "mask of another":
        tl.store(before_ptr + tl.program_id(0), 1, mask=before == 0)
    y = tl.load(y_ptr)
    tl.store(y_ptr, y + 1.0)
    tl.atomic_add(count_ptr, 1)


def check_counting_is_no_lock():
    """An atomic before the load and one after the store guard nothing if nobody looks at what the first returns.

    To store it is not to look, and a mask speaks for its own access alone.
    """
    for how in ("", "kept", "mask of another"):
        for seed in range(3):
            with calls.call(seed=seed):
                count, kept = torch.zeros(1, dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
                fault = raised(Race, bracketed_kernel[(4,)], count, torch.zeros(1), kept, how)
                says(fault, "an atomic before it does so only if what it returned decides a branch, a loop or a mask")


@triton.jit
def last_kernel(count_ptr, partial_ptr, y_ptr, N: tl.constexpr, HOW: tl.constexpr):
    program, at = tl.program_id(0), tl.arange(0, N)
    tl.store(partial_ptr + program, program + 1.0)
    is_last = tl.atomic_add(count_ptr, 1) == N - 1
    total = 0.0
    if HOW == "loop":
        for i in range(tl.where(is_last, N, 0)):
            total += tl.load(partial_ptr + i)
    elif HOW == "while":
        i = tl.where(is_last, 0, N)
        while i < N:
            total += tl.load(partial_ptr + i)
            i += 1
    elif HOW == "mask":
        mask = (at < N) & tl.broadcast_to(is_last, (N,))
        total = tl.sum(tl.load(partial_ptr + at, mask=mask, other=0.0))
    else:
        total = tl.sum(tl.load(partial_ptr + at))
    tl.store(y_ptr, total, mask=is_last)


def check_looking_at_the_count():
    """A loop or a mask may ask who is last."""
    for how in ("loop", "while", "mask"):
        for seed in range(3):
            with calls.call(seed=seed):
                y = torch.zeros(1)
                last_kernel[(4,)](torch.zeros(1, dtype=torch.int32), torch.empty(4), y, N=4, HOW=how)
                assert y.item() == 10
    count, partial = torch.zeros(1, dtype=torch.int32), torch.zeros(4)
    raised(Race, last_kernel[(4,)], count, partial, torch.zeros(1), N=4, HOW="nobody asks")


def check_looking_by_address():
    """Who follows what an atomic returned finds what was stored before it was put there."""

    @triton.jit
    def kernel(head_ptr, node_ptr, y_ptr):
        program = tl.program_id(0)
        tl.store(node_ptr + program + 1, program + 1.0)
        before = tl.atomic_xchg(head_ptr, program + 1)
        tl.store(y_ptr + program, tl.load(node_ptr + before))

    y = torch.zeros(5)
    kernel[(5,)](torch.zeros(1, dtype=torch.int32), torch.zeros(6), y)
    assert len(set(y.tolist())) == 5


@triton.jit
def layer_norm_kernel(lock_ptr, count_ptr, gw_ptr, SIZE: tl.constexpr, N_GROUPS: tl.constexpr):
    at = tl.arange(0, SIZE)
    group = tl.program_id(0) % N_GROUPS
    gw_ptrs = gw_ptr + group * SIZE + at
    gw = at + 1.0
    while tl.atomic_cas(lock_ptr + group, 0, 1) == 1:
        pass
    count = tl.load(count_ptr + group)
    if count == 0:
        tl.atomic_xchg(count_ptr + group, 1)
    else:
        gw += tl.load(gw_ptrs)
    tl.store(gw_ptrs, gw)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr + group, 0)


def check_the_lock_of_a_tutorial():
    """Triton's tutorial on layer norm adds up by groups, under a lock each, into memory that nobody has filled."""
    gw, locks = torch.empty(3, 8), torch.zeros(6, dtype=torch.int32)
    with calls.call() as seen:
        layer_norm_kernel[(12,)](locks, locks[3:], gw, SIZE=8, N_GROUPS=3)
    assert torch.equal(gw, 4 * torch.arange(1.0, 9.0).expand(3, 8))
    assert seen.warnings == []


@triton.jit
def reversed_kernel(x_ptr, y_ptr, n, SIZE: tl.constexpr, HOW: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(x_ptr + at, at + 1.0, mask=at < n)
    if HOW == "barrier":
        tl.debug_barrier()
    if HOW == "own lanes":
        tl.store(y_ptr + at, tl.load(x_ptr + at, mask=(at < n) & (at > 1), other=0.0))
    else:
        tl.store(y_ptr + at, tl.load(x_ptr + n - 1 - at, mask=at < n, other=0.0))


def check_lanes_that_hand_over():
    """What one lane stores another may load after a barrier; without one it is worth a warning, once a line."""
    for how in ("reversed", "barrier", "own lanes"):
        with calls.call() as seen:
            y = torch.empty(2, 8)
            reversed_kernel[(1,)](torch.zeros(8), y[0], 6, SIZE=8, HOW=how)
            reversed_kernel[(1,)](torch.zeros(8), y[1], 6, SIZE=8, HOW=how)
        assert y.eq(
            torch.tensor([0.0, 0, 3, 4, 5, 6, 0, 0] if how == "own lanes" else [6.0, 5, 4, 3, 2, 1, 0, 0])
        ).all()
        assert len(seen.warnings) == (how == "reversed")
        if how == "reversed":
            says(Exception(seen.warnings[0]), "no barrier: program (0, 0, 0) of reversed_kernel loads x_ptr[5]")
            says(Exception(seen.warnings[0]), "tl.store(x_ptr + at, at + 1.0", "say tl.debug_barrier() between the two")


def check_lanes_that_store_together():
    """Lanes that all store one value to one element may all load it, and so may a kernel's next program."""

    @triton.jit
    def kernel(x_ptr, y_ptr, SIZE: tl.constexpr):
        at, program = tl.arange(0, SIZE), tl.program_id(0)
        x_ptrs = x_ptr + program + tl.zeros_like(at)
        tl.store(x_ptrs, program + 3.0 + tl.zeros_like(at))
        tl.store(x_ptrs, program + 3.0 + tl.zeros_like(at), mask=at == 0)
        tl.store(y_ptr + program * SIZE + at, tl.load(x_ptrs))

    y = torch.empty(2, 8)
    with calls.call() as seen:
        kernel[(2,)](torch.zeros(2), y, SIZE=8)
    assert y.tolist() == [[3] * 8, [4] * 8]
    assert seen.warnings == []


@triton.jit
def wait_for(flag_ptr):
    while tl.atomic_add(flag_ptr, 0) == 0:
        pass


@triton.jit
def wait_and_load(flag_ptr, y_ptr):
    wait_for(flag_ptr)
    return tl.load(y_ptr)


def check_waiting_in_a_helper():
    """The loop may be in a helper's helper; who waits for a program that runs later is told so."""

    @triton.jit
    def kernel(flag_ptr, y_ptr, STEP: tl.constexpr, LAST: tl.constexpr):
        program = tl.program_id(0)
        y = 0.0
        if program != LAST:
            y = wait_and_load(flag_ptr + program + STEP, y_ptr + program + STEP)
        tl.store(y_ptr + program, y + 1.0)
        tl.atomic_xchg(flag_ptr + program, 1)

    y = torch.empty(6)
    kernel[(6,)](torch.zeros(6, dtype=torch.int32), y, STEP=-1, LAST=0)
    assert y.tolist() == [1, 2, 3, 4, 5, 6]
    error = raised(NotImplementedError, kernel[(2,)], torch.zeros(6, dtype=torch.int32), y, STEP=1, LAST=1)
    says(error, "waits for a program that runs after it", "in wait_for", "--device cuda")


def check_the_second_reader():
    """A store is a race with every reader that it is not ordered with, not only with the first."""

    @triton.jit
    def kernel(flag_ptr, x_ptr, y_ptr):
        program = tl.program_id(0)
        if program < 2:
            tl.store(y_ptr + program, tl.load(x_ptr))
            if program == 0:
                tl.atomic_xchg(flag_ptr, 1)
        else:
            wait_for(flag_ptr)
            tl.store(x_ptr, 5.0)

    raised(Race, kernel[(3,)], torch.zeros(1, dtype=torch.int32), torch.zeros(1), torch.zeros(3))


def check_addresses_in_memory():
    """A kernel may store addresses for the next one, and subtract them."""

    @triton.jit
    def table_kernel(x_ptr, z_ptr, table_ptr):
        tl.store(table_ptr, x_ptr.to(tl.int64))
        tl.store(table_ptr + 1, z_ptr.to(tl.int64) - x_ptr.to(tl.int64))

    @triton.jit
    def use_kernel(table_ptr, y_ptr):
        x_ptr = tl.load(table_ptr).to(tl.pointer_type(tl.float32))
        tl.store(y_ptr, tl.load(x_ptr + 2))

    x, table, y = torch.arange(8.0), torch.zeros(2, dtype=torch.int64), torch.zeros(1)
    table_kernel[(1,)](x, x[4:], table)
    assert table.tolist() == [x.data_ptr(), 16]
    use_kernel[(1,)](table, y)
    assert y.item() == 2


def check_programs_that_wait():
    """Programs that wait for the one before are run in order, and end."""

    @triton.jit
    def kernel(flag_ptr, y_ptr):
        program = tl.program_id(0)
        while tl.atomic_add(flag_ptr, 0) < program:
            pass
        tl.store(y_ptr, tl.load(y_ptr) * 2.0 + program)
        tl.atomic_add(flag_ptr, 1)

    y = torch.zeros(1)
    kernel[(6,)](torch.zeros(1, dtype=torch.int32), y)
    assert y.item() == 57


def check_flags():
    """Programs may wait for a flag with a compare-and-swap, or with a volatile load."""

    @triton.jit
    def kernel(flag_ptr, y_ptr, IS_VOLATILE: tl.constexpr):
        program = tl.program_id(0)
        y = 0.0
        if program > 0:
            if IS_VOLATILE:
                while tl.load(flag_ptr + program - 1, volatile=True) == 0:
                    pass
            else:
                while tl.atomic_cas(flag_ptr + program - 1, 1, 1) == 0:
                    pass
            y = tl.load(y_ptr + program - 1)
        tl.store(y_ptr + program, y + 1.0)
        tl.atomic_xchg(flag_ptr + program, 1)

    for is_volatile in (True, False):
        y = torch.empty(6)
        kernel[(6,)](torch.zeros(6, dtype=torch.int32), y, IS_VOLATILE=is_volatile)
        assert y.tolist() == [1, 2, 3, 4, 5, 6]


def check_order_is_shuffled():
    """Programs run in an order that depends on the seed alone."""

    @triton.jit
    def kernel(counter_ptr, order_ptr):
        tl.store(order_ptr + tl.atomic_add(counter_ptr, 1), tl.program_id(0))

    def order(seed: int) -> list[int]:
        counter, ids = torch.zeros(1, dtype=torch.int32), torch.zeros(20, dtype=torch.int32)
        with calls.call(seed=seed):
            kernel[(20,)](counter, ids)
        return ids.tolist()

    assert order(1) == order(1) != order(2)
    assert sorted(order(1)) == list(range(20)) != order(1)


# undefined values


@triton.jit
def reduce_kernel(x_ptr, y_ptr, n, SIZE: tl.constexpr, HOW: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(x_ptr + at)  # the scratch
    if HOW == "masked":
        x = tl.where(at < n, x, 0.0)
    tl.store(y_ptr, tl.max(x) if HOW == "max" else tl.min(x) if HOW == "min" else tl.sum(x))


def check_unwritten_memory():
    """A stored value must not depend on what nobody wrote, not even under max, which ignores NaN."""
    y = torch.zeros(1)
    for how in ("sum", "max", "min"):
        for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int32):
            x = torch.empty(8, dtype=dtype)
            x[:5] = 1
            fault = raised(Unwritten, reduce_kernel[(1,)], x, y, 5, SIZE=8, HOW=how)
            says(fault, "unwritten memory: program (0, 0, 0) of reduce_kernel loads x_ptr[5]", "# the scratch")


def check_one_program_of_many_uses_it():
    """Most programs throw the unwritten value away; the one that does not is found."""

    @triton.jit
    def kernel(x_ptr, y_ptr):
        program = tl.program_id(0)
        x = tl.load(x_ptr)
        tl.store(y_ptr + program, tl.where(program == 11, x, 0.0))

    for seed in range(4):
        with calls.call(seed=seed):
            raised(Unwritten, kernel[(16,)], torch.empty(1), torch.zeros(16))


def check_unwritten_and_unused():
    """Reading too much and throwing it away is no fault; nor is memory that a kernel or PyTorch has filled."""
    x, y = torch.empty(8), torch.zeros(1)
    x[:5] = 1
    reduce_kernel[(1,)](x, y, 5, SIZE=8, HOW="masked")
    assert y.item() == 5
    same_kernel[(1,)](x[5:], VALUE=2)
    x[6:].fill_(3)
    reduce_kernel[(1,)](x, y, 8, SIZE=8, HOW="sum")
    assert y.item() == 13


def check_unwritten_and_copied():
    """Moving padding about that nobody has written is no use of it; using the copy is."""
    x, copied, y = torch.empty(8), torch.empty(8), torch.zeros(1)
    x[:5] = 1
    copy_kernel[(1,)](x, copied, 8, 0, SIZE=8)
    reduce_kernel[(1,)](copied, y, 5, SIZE=8, HOW="masked")
    assert y.item() == 5
    assert unwritten_in(copied) == (3, (5,))
    raised(Unwritten, reduce_kernel[(1,)], copied, y, 8, SIZE=8, HOW="sum")


def check_unwritten_accumulators():
    """Atomics on fresh memory add to garbage; an exchange does not care."""

    @triton.jit
    def kernel(y_ptr, IS_EXCHANGE: tl.constexpr):
        if IS_EXCHANGE:
            tl.atomic_xchg(y_ptr, 1.0)
        else:
            tl.atomic_add(y_ptr, 1.0)

    says(raised(Unwritten, kernel[(1,)], torch.empty(1), IS_EXCHANGE=False), "updates y_ptr[0]")
    kernel[(1,)](torch.empty(1), IS_EXCHANGE=True)


def check_all_16_bit_values_are_values():
    """An integer that happens to look like fresh memory is one all the same."""
    x = torch.empty(2**16, dtype=torch.int16)
    x.copy_(torch.arange(-(2**15), 2**15))
    y = torch.zeros(2**16, dtype=torch.int16)
    copy_kernel[(16,)](x, y, 2**16, 0, SIZE=4096)
    assert torch.equal(x, y)


@triton.jit
def tail_kernel(x_ptr, y_ptr, n, SIZE: tl.constexpr, IS_USED: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    x = tl.load(x_ptr + at, mask=at < n)  # no other
    if not IS_USED:
        x = tl.where(at < n, x, 0.0)
    tl.atomic_add(y_ptr, tl.sum(x))


def check_masked_load_without_other():
    """It is worth a warning where a masked-out lane reaches a stored value; the zeros stay zeros."""
    x, y = torch.ones(100), torch.zeros(1)
    for is_used in (True, False):
        with calls.call([x]) as seen:
            y.zero_()
            tail_kernel[(7,)](x, y, 100, SIZE=16, IS_USED=is_used)
            assert y.item() == 100
        assert len(seen.warnings) == is_used
        if is_used:
            says(Exception(seen.warnings[0]), "masked load without other=", "# no other", "say other=0.0")


def check_a_factor_of_zero_hides_nothing():
    """A masked-out lane may hold NaN on a GPU, and 0 · NaN is NaN; a choice between two values does not mind."""

    @triton.jit
    def kernel(x_ptr, y_ptr, n, SIZE: tl.constexpr, IS_FACTOR: tl.constexpr):
        at = tl.arange(0, SIZE)
        x = tl.load(x_ptr + at, mask=at < n)  # no other
        x = x * (at < n).to(tl.float32) if IS_FACTOR else tl.where(at < n, x, 0.0)
        tl.store(y_ptr, tl.sum(x))

    for is_factor in (True, False):
        with calls.call() as seen:
            kernel[(1,)](torch.ones(5), torch.zeros(1), 5, SIZE=8, IS_FACTOR=is_factor)
        assert len(seen.warnings) == is_factor


def check_where_a_nan_is_made():
    """The line that makes a NaN of numbers is known, not those that hand it on."""

    @triton.jit
    def kernel(x_ptr, y_ptr):
        x = tl.load(x_ptr)
        nothing = x - x  # ∞ − ∞
        tl.store(y_ptr, tl.exp(nothing) * 2.0 + tl.zeros((1,), tl.float32).sum())

    for x, is_made in ((math.inf, True), (math.nan, False), (1.0, False)):
        with calls.call() as seen:
            kernel[(1,)](torch.tensor([x]), torch.zeros(1))
        assert len(seen.nans) == is_made
        if is_made:
            says(Exception(*seen.nans.values()), "in kernel: nothing = x - x  # ∞ − ∞")


def check_outputs_never_stored():
    """What no kernel wrote of a float tensor is found, also in a copy."""
    y = torch.empty(4, 8)
    copy_kernel[(2,)](torch.ones(16), y, 16, 0, SIZE=8)
    assert unwritten_in(y) == (16, (2, 0))
    assert unwritten_in(y.clone().T) == (16, (0, 2))
    assert unwritten_in(y[:2]) is None


# inputs


def check_inputs_are_not_written():
    """A store or an atomic to memory of the caller is a fault, a store to a copy is none."""
    x = torch.zeros(4)
    with calls.call([x]):
        says(raised(InputWritten, same_kernel[(1,)], x[2:], VALUE=1), "stores to y_ptr[0]", "argument 0 of the call")
        says(raised(InputWritten, accumulate_kernel[(1,)], x, IS_ATOMIC=True), "updates y_ptr[0]")
        same_kernel[(1,)](x.clone(), VALUE=1)
    assert not x.any()
    same_kernel[(1,)](x, VALUE=1)


if __name__ == "__main__":
    run_checks(globals())
