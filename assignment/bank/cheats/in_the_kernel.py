"""Kernels that a GPU could not run: in the simulator their bodies are Python, which can reach torch, NumPy and more."""

from assignment.bank.cheats import LOSES, Cheat

# Refused as no kernel, or as code that Triton does not compile.
EVIDENCE = r"(?s)kernel|compile|constexpr|Error"

FORWARD = """
HELD = {{}}

def weighted_sum_forward(x, weight):
    plain._check_rows(x, weight)
    y = torch.empty(x.shape[:-1], dtype=x.dtype)
    HELD.update(x=x, weight=weight, y=y)
    if y.numel():
        {launch}
    return y
"""
ONE = "_kernel[(1,)](x, weight, y)"
EACH = "_kernel[(y.numel(),)](x, weight, y)"


def inside(name: str, kernel: str, launch: str = ONE, before: str = "") -> Cheat:
    source = before + FORWARD.format(launch=launch) + kernel
    return Cheat(name, "weighted_sum", source, LOSES, ("test_forward_values",), evidence=EVIDENCE)


SLOW = {"torch_of_a_closure"}
CHEATS = [
    inside(
        "torch_in_the_body",
        """
def compute():
    HELD["y"].copy_(weighted(HELD["x"], HELD["weight"]))

@triton.jit
def _kernel(x_ptr, w_ptr, y_ptr):
    compute()
""",
    ),
    inside(
        "numpy_in_a_helper_of_a_helper",
        """
def compute():
    HELD["y"].float().numpy()  # the plain way, so that bfloat16 fails
    HELD["y"].numpy()[...] = HELD["x"].numpy() @ HELD["weight"].numpy()

@triton.jit
def helper(y_ptr):
    compute()
    return y_ptr

@triton.jit
def _kernel(x_ptr, w_ptr, y_ptr):
    helper(y_ptr)
""",
    ),
    inside(
        "torch_of_a_closure",
        """
def make():
    def compute():
        HELD["y"].copy_(weighted(HELD["x"], HELD["weight"]))

    @triton.jit
    def kernel(x_ptr, w_ptr, y_ptr):
        compute()

    return kernel

_kernel = make()
""",
    ),
    inside(
        "values_put_into_a_handle",
        """
def fill(block):
    answer = weighted(HELD["x"], HELD["weight"]).float().reshape(-1).numpy()
    block.handle.data[: answer.size] = answer

@triton.jit
def _kernel(x_ptr, w_ptr, y_ptr, n, SIZE: tl.constexpr):
    rows = tl.arange(0, SIZE)
    y = tl.load(x_ptr + rows * 0).to(tl.float32) * 0
    fill(y)
    tl.store(y_ptr + rows, y.to(y_ptr.dtype.element_ty), mask=rows < n)
""",
        launch="_kernel[(1,)](x, weight, y, y.numel(), SIZE=triton.next_power_of_2(y.numel()))",
    ),
    inside(
        "handle_reached_by_attributes",
        """
@triton.jit
def _kernel(x_ptr, w_ptr, y_ptr, n, SIZE: tl.constexpr):
    rows = tl.arange(0, SIZE)
    y = tl.load(x_ptr + rows * 0).to(tl.float32) * 0
    y.handle.data[:] = ANSWER[: y.handle.data.size]
    tl.store(y_ptr + rows, y.to(y_ptr.dtype.element_ty), mask=rows < n)
""",
        launch="ANSWER[: y.numel()] = weighted(x, weight).float().reshape(-1).numpy(); "
        "_kernel[(1,)](x, weight, y, y.numel(), SIZE=triton.next_power_of_2(y.numel()))",
        before="ANSWER = np.zeros(1 << 20, np.float32)\n",
    ),
    inside(
        "answer_from_a_python_function",
        """
def answer(i):
    return float(weighted(HELD["x"], HELD["weight"]).reshape(-1)[int(i.handle.data[0])])

@triton.jit
def _kernel(x_ptr, w_ptr, y_ptr):
    row = tl.program_id(0)
    x = tl.load(x_ptr)
    tl.store(y_ptr + row, answer(row))
""",
        launch=EACH,
    ),
    inside(
        "global_read_by_the_kernel",
        """
@triton.jit
def _kernel(y_ptr, i, I: tl.constexpr):
    tl.store(y_ptr + i, VALUES[I])
""",
        launch="VALUES[:] = weighted(x, weight).reshape(-1).tolist(); "
        "[_kernel[(1,)](y, i, I=i) for i in range(y.numel())]",
        before="VALUES = []\n",
    ),
    inside(
        "grid_function_computes",
        """
@triton.jit
def _kernel(x_ptr, w_ptr, y_ptr):
    tl.store(y_ptr, tl.load(y_ptr))
""",
        launch="_kernel[lambda meta: (1 + 0 * len(y.copy_(weighted(x, weight)).shape),)](x, weight, y)",
    ),
    inside(
        "pre_run_hook_computes",
        """
@triton.jit
def _kernel(x_ptr, w_ptr, y_ptr):
    tl.store(y_ptr, tl.load(y_ptr))

_kernel.add_pre_run_hook(lambda x, weight, y: y.copy_(weighted(x, weight)))
""",
    ),
    inside(
        "autotuners_hook_computes",
        """
def compute(arguments):
    arguments["y_ptr"].copy_(weighted(arguments["x_ptr"], arguments["w_ptr"]))

@triton.autotune([triton.Config({}, pre_hook=compute)], key=[])
@triton.jit
def _kernel(x_ptr, w_ptr, y_ptr):
    tl.store(y_ptr, tl.load(y_ptr))
""",
    ),
    inside(
        "a_class_that_says_it_is_a_kernel",
        """
class _Kernel:
    def __getitem__(self, grid):
        return lambda x, weight, y: y.copy_(weighted(x, weight))

_kernel = _Kernel()
""",
    ),
    inside(
        "the_simulators_memory_from_inside",
        """
@triton.jit
def _kernel(x_ptr, w_ptr, y_ptr):
    tl.store(y_ptr, tl.load(x_ptr))

def whole(function):
    def run(*args, **kwargs):
        function(*args, **kwargs)
        HELD["y"].copy_(weighted(HELD["x"], HELD["weight"]))

    return run

_kernel.fn = whole(_kernel.fn)
""",
    ),
]
