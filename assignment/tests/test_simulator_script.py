"""`python -m assignment.simulator SCRIPT`, the tool that students debug with: what it prints, and its exit status."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from assignment.tests.forked import python

pytestmark = pytest.mark.long_file

ROOT = Path(__file__).parents[2]
IMPORTS = "import sys\nimport torch\nimport triton\nimport triton.language as tl\n\n"

RIGHT = """
@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, TILE_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * TILE_SIZE + tl.arange(0, TILE_SIZE)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, x + tl.load(y_ptr + offsets, mask=mask, other=0.0), mask=mask)

@triton.jit
def copy_rows_kernel(x_ptr, y_ptr, stride_xn, stride_xd, stride_yn, stride_yd, D_TILE_SIZE: tl.constexpr):
    cols = tl.arange(0, D_TILE_SIZE)
    x = tl.load(x_ptr + tl.program_id(0) * stride_xn + cols * stride_xd)
    tl.store(y_ptr + tl.program_id(0) * stride_yn + cols * stride_yd, x)

@triton.jit
def square_kernel(x_ptr, y_ptr, SIZE: tl.constexpr):
    places = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    x = tl.load(x_ptr + places)
    tl.store(y_ptr + places, tl.dot(x, x))

@triton.jit
def second_to_first_kernel(x_ptr):
    tl.store(x_ptr, tl.load(x_ptr + 1))

torch.set_default_device("cuda")
device = torch.device("cuda", 0)
x = torch.randn(1000, device="cuda:0", generator=torch.Generator("cuda").manual_seed(1))
y = torch.randn(1000).cuda().to("cuda").to(0)
out = torch.empty(1000, device=device)
add_kernel[(5,)](x, y, out, 1000, TILE_SIZE=256)  # one more than it takes
assert torch.equal(out, x + y)

with torch.device("cuda"):
    wide, tall = torch.randn(4, 64), torch.empty(64, 6)
copy_rows_kernel[(4,)](wide, tall[:, :4].T, 64, 1, 1, 6, D_TILE_SIZE=64)
print("sliced before it is read", torch.equal(tall[:, :4].T, wide), tall.shape, torch.empty_like(tall).shape)
print("chosen by a mask", torch.equal(torch.where(torch.arange(6) < 4, tall, 0)[:, :4], tall[:, torch.arange(4)]))

square = torch.empty(16, 16, device="cuda")
square_kernel[(1,)](torch.ones(16, 16, device="cuda"), square, SIZE=16)
second_to_first_kernel[(2,)](square)
print("cuda", torch.cuda.is_available(), torch.cuda.device_count(), out.is_cuda, out.device == device, square.sum())
"""

OUT_OF_BOUNDS = """
@triton.jit
def add_one_kernel(x_ptr, y_ptr, TILE_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * TILE_SIZE + tl.arange(0, TILE_SIZE)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets) + 1)

def add_one(x):
    y = torch.empty_like(x)
    add_one_kernel[(4,)](x, y, TILE_SIZE=256)
    return y

print("before")
add_one(torch.randn(1000))
print("after")
"""

CAUGHT = """
@triton.jit
def last_kernel(x_ptr):
    tl.store(x_ptr, tl.program_id(0).to(tl.float32))

x = torch.empty(2)
try:
    last_kernel[(2,)](x)
except Exception as error:
    print("caught", type(error).__name__)
print("what a fault leaves behind", x.sum(), x)
sys.exit(0)
"""

UNSTORED = """
@triton.jit
def fill_kernel(y_ptr, n, TILE_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * TILE_SIZE + tl.arange(0, TILE_SIZE)
    tl.store(y_ptr + offsets, tl.zeros((TILE_SIZE,), tl.float32), mask=offsets < n)

def filled(shape):
    y = torch.empty(shape)
    fill_kernel[(3,)](y, y.numel(), TILE_SIZE=256)
    return y

y = filled(1000)
print(y[:768].sum())
total = y.sum()
total = y.sum()
print(filled((8, 100)))
filled(900).half()
filled(901).tolist()
unread = filled(902)
print("to the end")
"""

AS_ON_A_GPU = """
from triton.language.extra import libdevice

@triton.jit
def one_kernel(x_ptr, N: tl.constexpr):
    tl.static_print("compiled for", N)
    tl.store(x_ptr + tl.arange(0, N), 1.0)

@triton.jit
def sign(x):
    if x < 0:
        return -1
    return 1

@triton.jit
def sign_kernel(x_ptr: tl.const, z_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(z_ptr + at, tl.map_elementwise(sign, tl.load(x_ptr + at)))

@triton.jit
def const_kernel(x_ptr: tl.const):
    tl.store(x_ptr, 1.0)

@triton.jit
def types_kernel(x_ptr):
    tl.store(x_ptr, tl.load(x_ptr) & 1.0)

@triton.jit
def asserts_kernel(x_ptr):
    tl.device_assert(tl.load(x_ptr) == 7.0, "not seven")

@triton.jit
def bits_kernel(y_ptr):
    ones = tl.full((4,), 1, tl.int1)
    tl.store(y_ptr, (ones + ones).to(tl.int32).sum())
    tl.store(y_ptr + 1, tl.sum(tl.full((5 + 3,), 1, tl.int1), dtype=tl.int1).to(tl.int32))
    tl.store(y_ptr + 2, tl.sum(ones))

class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        out = torch.empty(grad.shape, device="cuda")
        one_kernel[(1,)](out, 16)
        assert grad.is_cuda and grad.device == out.device
        return 2 * grad * out

def refused(error, function, *args, **options):
    try:
        function(*args, **options)
    except error as raised:
        return type(raised).__name__
    raise SystemExit(f"{function} was not refused")

x = torch.zeros(16, device="cuda")
assert x.is_cuda and "cuda" in str(x.device) and x.device == torch.device("cuda", 0)
assert not torch.zeros(1).is_cuda and torch.zeros(1).device.type == "cpu" and not (torch.ones(2) + 1).is_cuda
assert torch.ones(2).cuda().is_cuda and not x.cpu().is_cuda and x.cpu() is not x and x.cuda() is x
one_kernel[(1,)](torch.zeros(16).pin_memory(), 16)
one_kernel[(1,)](torch.zeros(16, pin_memory=True), 16)
pinned = torch.zeros(16).pin_memory()
sent = pinned.to("cuda", non_blocking=True)
pinned.fill_(7)
assert sent.is_cuda and not pinned.is_cuda and sent.sum() == 0
assert not torch.empty(16).is_cuda and refused(ValueError, one_kernel[(1,)], torch.empty(16), 16)
assert refused(ValueError, one_kernel[(1,)], torch.zeros(16), 16) == "ValueError"
assert refused(triton.CompilationError, const_kernel[(1,)], x) == "CompilationError"
assert refused(triton.TritonError, types_kernel[(1,)], x) == "CompilationError"
try:
    const_kernel[(1,)](x)
except triton.CompilationError as error:
    assert str(error) == str(error.__cause__) == "Cannot store to a constant pointer"
assert refused(ValueError, one_kernel[(1,)], triton.reinterpret(x, tl.float8e4b8), 16)
assert isinstance(one_kernel, triton.JITFunction) and not isinstance(one_kernel, int)
x.requires_grad_()
Doubled.apply(x).sum().backward()
assert x.grad.is_cuda and x.grad.sum() == 32

z = torch.empty(4, dtype=torch.int32, device="cuda")
sign_kernel[(1,)](torch.tensor([-3, 4, -5, 6], device="cuda"), z, 4)
assert z.tolist() == [-1, 1, -1, 1]
bits_kernel[(1,)](z)
assert z.tolist()[:3] == [0, 0, 4]

a, b = torch.ones(4, 4, device="cuda", requires_grad=True), torch.ones(4, 4, device="cuda")
with torch.autocast("cuda", dtype=torch.bfloat16):
    product = a @ b
    assert product.dtype == torch.nn.functional.linear(a, b).dtype == torch.bfloat16
    assert product.exp().dtype == torch.softmax(product, 0).dtype == torch.cat([product, a]).dtype == torch.float32
    assert (product + product).dtype == torch.bfloat16 and (a.double() @ b.double()).dtype == torch.float64
product.sum().backward()
assert (a @ b).dtype == a.grad.dtype == torch.float32

generator = torch.cuda.default_generators[0]
torch.manual_seed(5)
state = generator.get_state()
first = torch.rand(3, device="cuda")
assert state.view(torch.int64).tolist() == [5, 0] and generator.get_state().view(torch.int64).tolist() == [5, 4]
generator.set_state(state)
assert torch.equal(torch.rand(3, device="cuda"), first)
moved = torch.tensor([5, 12]).view(torch.uint8)
generator.set_state(moved)
assert torch.equal(torch.cuda.get_rng_state(), moved) and not torch.equal(torch.rand(3, device="cuda"), first)

a, c = torch.randn(8, 16, device="cuda").bfloat16(), torch.randn(8, 8, device="cuda")
exact, before = a.float() @ a.float().T, c.clone()
assert torch.equal(torch.mm(a, a.T, out_dtype=torch.float32), exact)
with torch.autocast("cuda"):
    torch.addmm(c, a, a.T, alpha=2, out_dtype=torch.float32, out=c)
assert torch.allclose(c, before + 2 * exact)

at = torch.randn(5, requires_grad=True)
torch.where(torch.ones(5, dtype=torch.bool), at.exp(), torch.zeros(5)).sum().backward()
assert not at.grad.is_cuda

made = torch._C._dynamo.guards._empty_strided_cuda((16,), (1,), torch.float32)
one_kernel[(1,)](made, 16)
assert made.sum() == 16
warm = one_kernel.warmup(torch.float32, N=16, num_warps=8, grid=(1,))
assert warm.metadata.num_warps == 8
x = torch.zeros(16, device="cuda")
warm[(1, 1, 1)](x, 16)
assert x.sum() == 16
if "compile" in sys.argv:
    assert 0 < warm.n_regs < 256 and warm.n_spills == warm.metadata.shared == 0 and "st.global" in warm.asm["ptx"]
print("asserts:", refused(AssertionError, asserts_kernel[(1,)], x, debug=True))
"""

NO_LAUNCH = """
import neighbour
print(sys.argv, __name__, neighbour.NAME)
sys.exit(7)
"""

RAISES = """
from triton.language.extra import libdevice

@triton.jit
def assembly(x):
    return tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=tl.int32, is_pure=True, pack=1)

@triton.jit
def assembly_kernel(x_ptr):
    tl.store(x_ptr, assembly(tl.load(x_ptr)))

@triton.jit
def library_kernel(x_ptr):
    tl.store(x_ptr, libdevice.rcp64h(tl.load(x_ptr).to(tl.float64)))

@triton.jit
def beyond_kernel(x_ptr):
    tl.store(x_ptr + 1, 0.0)

def said(function, *args):
    try:
        function(*args)
    except (RuntimeError, NotImplementedError) as error:
        print("said", error)

said(library_kernel[(1,)], torch.ones(1))
said(lambda: torch.cuda.Event().elapsed_time(torch.cuda.Event()))
said(triton.testing.do_bench, print)
try:
    beyond_kernel[(1,)](torch.ones(1))
except Exception:
    assembly_kernel[(1,)](torch.ones(1, dtype=torch.int32))
"""


def _tool(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "80"}
    command = "-W", "error", "-m", "assignment.simulator", *arguments
    return python(*command, cwd=folder, env=environment, timeout=120)


def _run(folder: Path, source: str, *options: str, arguments: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(IMPORTS + source)
    return _tool(folder, *options, "script.py", *arguments)


def _line(source: str, text: str) -> str:
    """ "script.py:12", for the first line that contains the text."""
    lines = (IMPORTS + source).splitlines()
    return f"script.py:{1 + next(number for number, line in enumerate(lines) if text in line)}"


Done = tuple[subprocess.CompletedProcess[str], Path]


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """The run of a right script, with all options."""
    folder = tmp_path_factory.mktemp("right")
    return _run(folder, RIGHT, "--report", "--html", "right.html", "--seed", "3"), folder / "right.html"


def test_right_script_succeeds(right: Done) -> None:
    """Padding that nobody reads is no error, nor is a warning; tensors asked for on a GPU are made, with one note."""
    done, _ = right
    assert done.returncode == 0, done.stderr
    assert "sliced before it is read True" in done.stdout
    assert "chosen by a mask True" in done.stdout
    assert "cuda True 1 True True tensor(4096.)" in done.stdout
    note, warning, *_ = done.stderr.splitlines()
    assert note.startswith("note: cuda tensors are made on the CPU")
    assert warning.startswith("warning: same value stored: programs")
    assert done.stderr.count("note:") == done.stderr.count("warning:") == 1


ROWS = {
    "1": "add_kernel (5, 1, 1) 5, 1 idle | 8 KB | 4 KB | 12 KB",
    "x_ptr": "float32 (1000,) 4 KB | 4 KB 1 | 4 KB",  # 1000 elements of 4 bytes, loaded once
    "out_ptr": "float32 (1000,) 4 KB | 4 KB 1 | 4 KB",
    "3": "square_kernel (1, 1, 1) 1 | 1.02 KB | 1.02 KB | 2.05 KB | 8.19 K tf32 | 4",  # 2 · 16³ / (2 · 16² · 4)
    "4": "second_to_first_kernel (2, 1, 1) 2 | 8 B | 8 B | 8 B",
}


@pytest.mark.parametrize("label", ROWS)
def test_report_counts(label: str, right: Done) -> None:
    """Each row of --report is what a count by hand gives."""
    rows = [line.split() for line in right[0].stdout.splitlines()]
    found = [row[1:] for row in rows if row and row[0] == label]
    assert found[0] == ROWS[label].replace("|", "").split()


def test_report_ends_with_pytorch(right: Done) -> None:
    """What PyTorch moves is on the last line but one, before where the page went."""
    assert re.search(r"1 KB = 1000 B", right[0].stdout)
    assert re.search(r"PyTorch's own operations: read [\d.]+ KB, wrote [\d.]+ KB, filled [\d.]+ KB\n", right[0].stdout)


def test_fault_is_reported_without_traceback(tmp_path: Path) -> None:
    """Out of bounds: what, where in the kernel, who launched it; the script ends there."""
    done = _run(tmp_path, OUT_OF_BOUNDS)
    assert (done.returncode, done.stdout) == (1, "before\n")
    what, where, lanes, launch = done.stderr.splitlines()
    assert what.startswith("out of bounds: program (3, 0, 0) of add_one_kernel loads x_ptr[1000], but x_ptr is float32")
    assert where.startswith(f"  at {_line(OUT_OF_BOUNDS, 'tl.load')} in add_one_kernel: ")
    assert lanes == "  24 of 256 active lanes: 24 past its last element"
    assert launch.startswith(f"  launched at {_line(OUT_OF_BOUNDS, 'add_one_kernel[')} in add_one: ")


@pytest.mark.slow
def test_fault_that_the_script_caught_counts(tmp_path: Path) -> None:
    """A race that is caught is reported once, and what it left undone is not; exit status 0 becomes 1."""
    done = _run(tmp_path, CAUGHT)
    assert done.returncode == 1
    assert "caught Race" in done.stdout
    assert "what a fault leaves behind" in done.stdout
    assert done.stderr.startswith("race: programs")
    assert done.stderr.count("both touch x_ptr[0]") == 1
    assert "Traceback" not in done.stderr
    assert "never stored" not in done.stderr


@pytest.mark.slow
def test_outputs_that_nobody_stored(tmp_path: Path) -> None:
    """Reported where PyTorch first reads them, whichever way, and the script runs on."""
    done = _run(tmp_path, UNSTORED)
    assert done.returncode == 1
    assert done.stdout.endswith("to the end\n")
    found = done.stderr.splitlines()
    assert found[0] == "never stored: y_ptr has 232 of 1000 elements that no kernel wrote, the first y_ptr[768]"
    assert found[1] == f"  read at {_line(UNSTORED, 'total = ')} in <module>: total = y.sum()"
    assert found[2] == "never stored: y_ptr has 32 of 800 elements that no kernel wrote, the first y_ptr[7, 68]"
    assert found[3].startswith(f"  read at {_line(UNSTORED, 'filled((8')} in <module>: print(")
    assert [line.split(" elements")[0] for line in found[4::2]] == [
        "never stored: y_ptr has 132 of 900",
        "never stored: y_ptr has 133 of 901",
    ]


def test_a_script_finds_what_a_gpu_has(tmp_path: Path) -> None:
    """Devices, dtypes of autocast, states of generators, exceptions, warm-ups"""
    done = _run(tmp_path, AS_ON_A_GPU)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == 2 * "compiled for 16\n" + "asserts: DoesNotHold\n"  # with four warps, and with eight


PLACES = """
import copy
import threading
import numpy as np

@triton.jit
def twice_kernel(x_ptr, y_ptr, N: tl.constexpr):
    tl.store(y_ptr + tl.arange(0, N), 2 * tl.load(x_ptr + tl.arange(0, N)))

def twice(x):
    assert x.is_cuda and x.device.type == "cuda"
    y = torch.empty_like(x)
    twice_kernel[(1,)](x, y, N=4)
    return y

class Twice(torch.autograd.Function):
    forward = staticmethod(lambda ctx, x: twice(x))
    backward = staticmethod(lambda ctx, g: twice(g))

x = torch.ones(4, requires_grad=True)
Twice.apply(x.cuda()).cpu().sum().backward()
print("gradients go back", not x.grad.is_cuda, x.grad)
x = torch.ones(4, device="cuda", requires_grad=True)
x.register_hook(twice)
x.half().float().sum().backward()
print("hooks", x.grad.is_cuda, copy.deepcopy(x.detach()).is_cuda)
twice(torch.ones(4, device=triton.runtime.driver.active.get_active_torch_device()))

class Worker(threading.Thread):
    def run(self):
        self.y = twice(torch.ones(4).cuda())

worker = Worker()
worker.start()
worker.join()
print("threads", worker.y.is_cuda)
array = np.ones(4, dtype=np.float32)
torch.from_numpy(array).cuda().add_(1)
torch.as_tensor(array, device="cuda").add_(1)
print("arrays are copied", array)
on_cpu = torch.ones(4, 4)
with torch.autocast("cuda"):
    print("autocast", (on_cpu @ on_cpu).dtype, (on_cpu.cuda() @ on_cpu.cuda()).dtype)
linear = torch.nn.Linear(4, 4).to(device="cuda", dtype=torch.float16)
twice(linear.bias.detach())
event = torch.cuda.Event()
event.record()
worker.y.record_stream(torch.cuda.current_stream())
"""


def test_tensors_lie_where_a_gpu_machine_has_them(tmp_path: Path) -> None:
    """In backward passes, hooks and threads, moved, copied and made of arrays."""
    done = _run(tmp_path, IMPORTS + PLACES)
    assert done.stdout.splitlines() == [
        "gradients go back True tensor([2., 2., 2., 2.])",
        "hooks True True",
        "threads True",
        "arrays are copied [1. 1. 1. 1.]",
        "autocast torch.float32 torch.float16",
    ], done.stderr
    assert done.returncode == 0, done.stderr


OPERATORS = """
@torch.library.custom_op("ours::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    y, here = torch.empty(x.shape, device="cuda"), torch.ones(x.shape)
    print("body", x.is_cuda, x.device, y.device, here.device)
    add_kernel[(1,)](x, x, y, x.numel(), TILE_SIZE=16)
    try:
        add_kernel[(1,)](here, x, y, x.numel(), TILE_SIZE=16)
    except ValueError as error:
        print("refused:", str(error).partition(":")[0])
    return y + torch.zeros(x.shape, device="cuda")

library = torch.library.Library("ours", "FRAGMENT")
library.define("thrice(Tensor x) -> Tensor")
library.impl("thrice", lambda x: twice(x) + x, "CUDA")
x = torch.arange(3.0, device="cuda")
print(torch.ops.ours.thrice(x), twice(x).is_cuda)
"""


def test_bodies_of_operators_are_host_code_as_any_other(tmp_path: Path) -> None:
    done = _run(tmp_path, IMPORTS + RIGHT.partition("@triton.jit\ndef copy_rows_kernel")[0] + OPERATORS)
    body = "body True cuda:0 cuda:0 cpu\nrefused: Pointer argument cannot be accessed from Triton (cpu tensor?)\n"
    assert done.stdout == f"{body}{body}tensor([0., 3., 6.]) True\n", done.stderr
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_compiler_is_asked_for_registers(tmp_path: Path) -> None:
    done = _run(tmp_path, AS_ON_A_GPU, arguments=("compile",))
    assert done.returncode == 0, done.stdout + done.stderr


def test_arguments_and_status_are_the_scripts(tmp_path: Path) -> None:
    """What follows SCRIPT is its own, it imports its neighbours, and sys.exit(7) exits 7."""
    (tmp_path / "neighbour.py").write_text("NAME = 'next door'\n")
    done = _run(tmp_path, NO_LAUNCH, arguments=("--report", "--seed", "x"))
    assert done.returncode == 7
    assert done.stdout == "['script.py', '--report', '--seed', 'x'] __main__ next door\n"
    assert done.stderr == "note: script.py launched no kernel\n"


@pytest.mark.slow
def test_other_exceptions_show_the_scripts_frames(tmp_path: Path) -> None:
    """The traceback has no frame of ours, runpy's or Triton's, and no fault that led to it: that is told by itself.

    What the simulator lacks is called by its name.
    """
    done = _run(tmp_path, RAISES)
    assert done.returncode == 1
    said = [line for line in done.stdout.splitlines() if line.startswith("said")]
    assert (
        said[0] == "said libdevice.rcp64h is not supported by the simulator, run with --device cuda (handout/tools.md)"
    )
    assert said[1] == said[2] == "said the simulator has no clock: time kernels on a GPU"
    frames = [line for line in done.stderr.splitlines() if line.startswith("  File")]
    assert [frame.rpartition(" ")[2] for frame in frames] == ["<module>", "assembly_kernel", "assembly"]
    assert all('script.py", line' in frame for frame in frames)
    last, fault = done.stderr.splitlines()[-5:-3]
    assert last == (
        'NotImplementedError: tl.inline_asm_elementwise: inline assembly, "mov.b32 $0, $1;", '
        "is not supported by the simulator, run with --device cuda (handout/tools.md): "
        "write it with operations of tl and libdevice"
    )
    assert fault.startswith("out of bounds: program (0, 0, 0) of beyond_kernel stores to x_ptr[1]")
    assert done.stderr.count("out of bounds") == 1


BAD = {
    "no such file": (["missing.py"], "missing.py: cannot be read: No such file or directory"),
    "a folder": (["folder"], "folder: expected a Python script, got a directory"),
    "a binary file": (["binary"], "binary: expected a Python script, got a binary file"),
    "another language": (["kernel.cu"], "kernel.cu: expected a Python script, got a file that is not Python: "),
    "not a page": (["--html", "a.txt", "s.py"], "argument --html: expected FILE.html in a folder that exists"),
    "no number": (["--l2", "0", "s.py"], "argument --l2: expected a whole number from 1"),
    "no script": ([], "the following arguments are required: SCRIPT"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(name: str, tmp_path: Path) -> None:
    """Exit status 2 and a sentence; for a bad SCRIPT that is all."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "kernel.cu").write_text("__global__ void kernel(float *x) {}\n")
    arguments, message = BAD[name]
    done = _tool(tmp_path, *arguments)
    assert done.returncode == 2
    assert message in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1 or "usage:" in done.stderr
