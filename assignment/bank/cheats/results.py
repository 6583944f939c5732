"""Denial by what is returned: results too large, too many, too deep, or of a kind that surprises."""

from assignment.bank.cheats import LOSES, Cheat
from assignment.bank.cheats.harness import VALUES

SAID = r"(?i)returned|shape|expected|answer|read|raised|process|not run|memory|gradient"


def returns(name: str, value: str, before: str = "", evidence: str = SAID) -> Cheat:
    source = f"{before}\n\ndef weighted_sum_forward(x, weight):\n    return {value}\n"
    return Cheat(name, "weighted_sum", source, LOSES, ("test_forward_values",), evidence, only=VALUES, within_s=240)


def differentiable(name: str, hook: str) -> Cheat:
    source = f"""
RIGHT = _wsum.weighted_sum

def weighted_sum(x, weight):
    y = RIGHT(x, weight)
    y.register_hook(hook)
    return y

def hook(grad):
    {hook}
"""
    only = ("test_weighted_sum.py::test_gradients",)
    return Cheat(name, "weighted_sum", source, LOSES, ("test_gradients",), SAID, only=only, within_s=240)


SLOW = {
    "gigabytes_by_strides",
    "gigabytes_of_zeros",
    "storage_of_gigabytes_behind_a_view",
    "sixty_four_dimensions",
    "no_tensors",
    "itself",
    "generator_without_an_end",
    "mkldnn",
    "nested",
    "negative_view",
    "float8",
    "parameter",
    "zeros_that_require_a_gradient",
    "tuple_without_an_end",
    "hook_that_sleeps",
}
CHEATS = [
    returns("gigabytes_by_expand", "torch.zeros(1).expand(100_000, 250_000)"),
    returns("gigabytes_by_strides", "torch.zeros(1).as_strided((5_000, 5_000, 1_000), (0, 0, 0))"),
    returns("overlapping_runs", "torch.zeros(30_000_000).as_strided((20_000, 1_000), (1, 1))"),
    returns("storage_of_gigabytes_behind_a_view", "torch.empty(1 << 28)[:: 1 << 20]"),
    returns("gigabytes_of_zeros", "torch.zeros(270, 1 << 20)"),
    returns("ten_thousand_tensors", "tuple(torch.zeros(1) for _ in range(10_000))"),
    returns("sixty_four_dimensions", "torch.zeros((1,) * 64)"),
    returns("nothing", "None", evidence=r"None"),
    returns("no_tensors", "()"),
    returns("itself", "ITSELF", "ITSELF = []\nITSELF.append(ITSELF)"),
    returns(
        "deep_tuple",
        "deep()",
        "def deep():\n    t = ()\n    for _ in range(200_000):\n        t = (t,)\n    return t\n",
    ),
    returns(
        "tuple_without_an_end",
        "Endless()",
        "class Endless(tuple):\n    def __iter__(self):\n        return iter([torch.zeros(1)] * (1 << 26))\n",
    ),
    returns("generator_without_an_end", "iter(int, 1)"),
    returns("sparse", "torch.zeros(x.shape[:-1]).to_sparse()", evidence=r"sparse|layout|strided"),
    returns("quantized", "torch.quantize_per_tensor(torch.zeros(x.shape[:-1]), 0.1, 0, torch.qint8)"),
    returns("meta", "torch.empty(x.shape[:-1], device='meta')"),
    returns("mkldnn", "torch.zeros(x.shape[:-1]).to_mkldnn()"),
    returns("nested", "torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])"),
    returns("conjugate_view", "torch.zeros(x.shape[:-1], dtype=torch.complex64).conj()"),
    returns(
        "negative_view", "torch.zeros(x.shape[:-1], dtype=torch.complex64).conj().imag", evidence=SAID + "|wrong|kernel"
    ),
    returns("float8", "torch.zeros(x.shape[:-1]).to(torch.float8_e4m3fn)"),
    returns(
        "freed_storage",
        "freed(x)",
        "def freed(x):\n    y = torch.zeros(x.shape[:-1])\n    y.untyped_storage().resize_(0)\n    return y\n",
    ),
    returns("parameter", "torch.nn.Parameter(torch.zeros(x.shape[:-1]))", evidence=r"Parameter"),
    returns(
        "fake",
        "fake(x)",
        "from torch._subclasses.fake_tensor import FakeTensorMode\n\n"
        "def fake(x):\n    with FakeTensorMode():\n        return torch.zeros(x.shape[:-1])\n",
    ),
    returns(
        "zeros_that_require_a_gradient",
        "torch.zeros(x.shape[:-1], requires_grad=True)",
        evidence=SAID + "|wrong|kernel",
    ),
    differentiable("hook_that_sleeps", "time.sleep(10**6)"),
    differentiable("hook_that_exits", "os._exit(0)"),
    differentiable("hook_that_returns_another_shape", "return torch.zeros(grad.numel() + 1)"),
]
