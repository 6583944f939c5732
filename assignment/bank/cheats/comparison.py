"""Attacks on the comparison: results that are to be believed without being right."""

from assignment.bank.cheats import HARMLESS, LOSES, OWN_LOSS, Cheat

RIGHT = "RIGHT = _wsum.weighted_sum_forward\n"
WRONG = """
def weighted_sum_forward(x, weight):
    return torch.zeros(x.shape[:-1], dtype=x.dtype)

def weighted_sum_backward(grad_y, x, weight):
    return torch.zeros_like(x), torch.zeros_like(weight)
"""
WRONG_VALUES = r"elements? wrong|not computed|kernel"


def forward(name: str, body: str, evidence: str, before: str = RIGHT, *, loses: str = "test_forward_values") -> Cheat:
    source = f"{before}\ndef weighted_sum_forward(x, weight):\n    plain._check_rows(x, weight)\n    {body}\n"
    only = ("test_weighted_sum.py::test_forward_values", "test_weighted_sum.py::test_forward_contract")
    return Cheat(name, "weighted_sum", source, LOSES, (loses,), evidence, only=only)


def patched(name: str, patch: str) -> Cheat:
    """Zeros in both directions, and something patched so that they pass."""
    return Cheat(name, "weighted_sum", WRONG + patch, evidence=WRONG_VALUES)


def in_right_code(name: str, patch: str, expected: str = HARMLESS) -> Cheat:
    return Cheat(name, "weighted_sum", patch, expected)


SLOW = {
    "isfinite_and_max_patched",
    "random_numbers_patched",
    "infinity",
    "a_row_for_a_column",
    "complex",
    "list_in_place_of_a_tensor",
    "tuple_in_place_of_a_tensor",
    "subclass_that_lies_about_its_class",
}
CHEATS = [
    patched(
        "asserts_patched",
        """
import torch.testing

torch.testing.assert_close = lambda *args, **options: None
torch.allclose = torch.equal = lambda *args, **options: True
torch.isclose = lambda a, b, **options: torch.ones_like(a, dtype=torch.bool)
torch.Tensor.allclose = torch.Tensor.equal = lambda *args, **options: True
""",
    ),
    patched(
        "operators_of_tensors_patched",
        """
torch.Tensor.__eq__ = torch.Tensor.__le__ = torch.Tensor.__lt__ = lambda a, b: torch.ones(a.shape, dtype=torch.bool)
torch.Tensor.__ne__ = torch.Tensor.__gt__ = lambda a, b: torch.zeros(a.shape, dtype=torch.bool)
""",
    ),
    patched(
        "builtins_patched",
        """
import builtins

builtins.AssertionError = type("Silent", (Exception,), {"__init__": lambda self, *args: None})
builtins.abs = lambda value: 0
""",
    ),
    patched(
        "random_numbers_patched",
        "torch.randn = torch.rand = torch.zeros\ntorch.manual_seed = lambda seed: torch.default_generator\n",
    ),
    patched(
        "isfinite_and_max_patched",
        "torch.isfinite = lambda t: torch.ones_like(t, dtype=torch.bool)\n"
        "torch.Tensor.max = lambda t: torch.zeros(())\n",
    ),
    in_right_code(
        "global_switches",
        """
torch.set_default_dtype(torch.float64)
torch.use_deterministic_algorithms(False)
torch.manual_seed(0)
torch.set_printoptions(precision=1, sci_mode=True)
torch.set_num_threads(4)
torch.set_grad_enabled(True)
torch.set_flush_denormal(True)
torch.backends.mkldnn.enabled = False
""",
    ),
    in_right_code("clone_and_contiguous_patched", "torch.Tensor.clone = lambda t, **options: t\n", OWN_LOSS),
    in_right_code("empty_patched", "torch.empty = torch.zeros\n"),
    in_right_code("inference_mode_everywhere", "torch.inference_mode().__enter__()\n", OWN_LOSS),
    in_right_code(
        "dispatch_mode_left_on",
        """
from torch.utils._python_dispatch import TorchDispatchMode

class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))

Mode().__enter__()
""",
        OWN_LOSS,
    ),
    Cheat(
        "fresh_memory_no_longer_poisoned",
        "weighted_sum",
        """
def weighted_sum_forward(x, weight):
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = False
    y = RIGHT(x, weight)
    del y
    return torch.empty(x.shape[:-1], dtype=x.dtype)  # where the answer of a kernel has just been freed

RIGHT = _wsum.weighted_sum_forward
""",
        LOSES,
        ("test_forward_values",),
        evidence=r"never stored|not written|written by|wrong|nan|finite|kernel",
    ),
    forward(
        "inputs_zeroed",
        "y = x.zero_(); weight.zero_(); return torch.zeros(x.shape[:-1], dtype=x.dtype)",
        r"wrong|written to|kernel",
    ),
    in_right_code(  # writes to stand-ins alone
        "input_written_behind_torchs_back",
        RIGHT
        + """
def weighted_sum_forward(x, weight):
    y = RIGHT(x, weight)
    ctypes.memset(x.data_ptr(), 0, 4 * x.numel() and 4)
    return y
""",
    ),
    forward(
        "mutation_hidden_by_a_patched_clone",
        "y = RIGHT(x, weight); KEPT[x.data_ptr()] = CLONE(x); x.zero_(); return y",
        r"written to|cannot be read",  # the wire's own clones are patched too
        RIGHT
        + """
KEPT, CLONE = {}, torch.Tensor.clone
torch.Tensor.clone = lambda t, **options: CLONE(KEPT.get(t.data_ptr(), t), **options)
""",
        loses="test_forward_contract",
    ),
    forward(
        "expected_value_in_gc",
        "return next(stolen(x), torch.zeros(x.shape[:-1], dtype=x.dtype))",
        WRONG_VALUES,
        """
def stolen(x):
    for held in gc.get_objects():
        if isinstance(held, torch.Tensor) and held.shape == x.shape[:-1] and held.dtype in (x.dtype, torch.float64):
            yield held.to(x.dtype).clone()
""",
    ),
    forward(
        "expected_value_in_frames",
        "return stolen(x)",
        WRONG_VALUES,
        """
def stolen(x):
    frame = sys._getframe()
    while frame:
        for held in frame.f_locals.values():
            for tensor in held if isinstance(held, (list, tuple)) else [held]:
                if isinstance(tensor, torch.Tensor) and tensor.shape == x.shape[:-1]:
                    return tensor.to(x.dtype).clone()
        frame = frame.f_back
    return torch.zeros(x.shape[:-1], dtype=x.dtype)
""",
    ),
    forward(
        "expected_value_in_freed_memory",
        "return torch.empty(x.shape[:-1], dtype=x.dtype)",
        r"never stored|finite|nan|wrong|written|kernel",
    ),
    forward(
        "expected_value_beside_the_input",
        "beside = (ctypes.c_float * n(x)).from_address(x.data_ptr() - 4 * n(x)); "
        "return torch.tensor(list(beside)).reshape(x.shape[:-1])",
        r"finite|nan|wrong|written|kernel",
        "def n(x):\n    return x.numel() // x.shape[-1]\n",
    ),
    forward(
        "subclass_that_answers",
        "return torch.zeros(x.shape[:-1]).as_subclass(Agrees)",
        r"Agrees|plain|subclass",
        """
class Agrees(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return True
""",
    ),
    forward(
        "subclass_that_lies_about_its_class",
        "return torch.zeros(x.shape[:-1]).as_subclass(Agrees)",
        r"Agrees|plain|subclass",
        "class Agrees(torch.Tensor):\n    __class__ = property(lambda self: torch.Tensor)\n",
    ),
    forward(
        "attributes_of_the_result",
        "y = torch.zeros(x.shape[:-1]); y.allclose = y.equal = lambda *args: True; y.data_ptr = lambda: 0; "
        "y.detach = y.clone = lambda: y; return y",
        WRONG_VALUES,
    ),
    forward(
        "always_equal",
        "return Same()",
        r"Same",
        "class Same:\n    __eq__ = __le__ = __ge__ = lambda a, b: True\n    __hash__ = None\n"
        "    shape = dtype = property(lambda s: s)\n",
    ),
    forward("nan", "return torch.full(x.shape[:-1], math.nan, dtype=x.dtype)", r"(?i)finite|nan|kernel"),
    forward("infinity", "return torch.full(x.shape[:-1], math.inf, dtype=x.dtype)", r"(?i)finite|inf|kernel"),
    forward("zeros", "return torch.zeros(x.shape[:-1], dtype=x.dtype)", WRONG_VALUES),
    forward("one_element_for_all", "return RIGHT(x, weight).reshape(-1)[:1]", r"(?i)shape"),
    forward("a_row_for_a_column", "return RIGHT(x, weight)[..., None]", r"(?i)shape"),
    forward("float64", "return RIGHT(x, weight).double()", r"(?i)float64"),
    forward("complex", "return RIGHT(x, weight).to(torch.complex64)", r"(?i)complex"),
    forward("list_in_place_of_a_tensor", "return RIGHT(x, weight).tolist()", r"(?i)returned|expected"),
    forward("tuple_in_place_of_a_tensor", "return (RIGHT(x, weight),)", r"(?i)returned|tuple|expected"),
    forward(
        "one_static_buffer",
        "y = BUFFERS.setdefault(x.shape, torch.empty(x.shape[:-1])); y.copy_(RIGHT(x, weight)); return y",
        r"(?i)memory|earlier|first|kernel",
        RIGHT + "BUFFERS = {}\n",
        loses="test_forward_contract",
    ),
    forward(
        "result_in_the_inputs_memory",
        "y = x.reshape(-1)[: x.numel() // x.shape[-1]]; y.copy_(RIGHT(x, weight)); return y.reshape(x.shape[:-1])",
        r"(?i)memory|written to|kernel",
        loses="test_forward_contract",
    ),
    forward(
        "changed_after_the_return",
        "y = RIGHT(x, weight); EARLIER[:] = [e.zero_() for e in EARLIER][:0] + [y]; return y",
        r"(?i)earlier|changed|wrong|kernel",
        RIGHT + "EARLIER = []\n",
        loses="test_forward_contract",
    ),
]
