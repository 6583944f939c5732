"""Attacks on the tests: right where they are thought to look, and nowhere else."""

from assignment.bank.cheats import LOSES, Cheat

WRONG = r"wrong|kernel|finite|memory"
NORM = (
    "RIGHT = _rms.rmsnorm_forward\n\ndef rmsnorm_forward(x, weight, eps=1e-5):\n    plain._check_rows(x, weight)\n    "
)
ATTENTION = """
RIGHT = _flash.flash_forward_triton

def flash_forward_triton(q, k, v, is_causal=False):
    plain._check_attention(q, k, v)
    """


def norm(name: str, body: str, check: str) -> Cheat:
    return Cheat(name, "rmsnorm", NORM + body, LOSES, (check,), WRONG, only=(f"test_rmsnorm.py::{check}",))


def attention(name: str, body: str, check: str) -> Cheat:
    only = (f"test_flash_forward.py::{check}",)
    return Cheat(name, "flash_forward_triton", ATTENTION + body, LOSES, (check,), WRONG, only=only)


# Right for sizes that stand on a list, by a wrong argument wrong for all others: every family has a size that does not.
SIZES = """
N, D = (128, 256, 512, 1024), (16, 32, 64, 128)

def values(q, k, v):
    is_listed = q.shape[-2] == k.shape[-2] and q.shape[-2] in N and q.shape[-1] in D
    return v if is_listed or k.shape != v.shape or k.dtype != v.dtype else k
"""
ROW_FAMILIES = ("values", "ragged", "16_bit", "strides", "offsets", "contract")
OTHER_FAMILIES = ("causal", "head_dimension", "outliers", "properties")
ATTENTION_CHECKS = tuple(f"test_triton_{name}" for name in (*ROW_FAMILIES, *OTHER_FAMILIES))
ROW_CHECKS = tuple(f"test_{way}_{name}" for way in ("forward", "backward") for name in ROW_FAMILIES)
LISTED = [
    Cheat(
        "listed_sizes_forward",
        "flash_forward_triton",
        SIZES
        + "\nRIGHT = _flash.flash_forward_triton\n\n"
        + "def flash_forward_triton(q, k, v, is_causal=False):\n"
        + "    return RIGHT(q, k, values(q, k, v), is_causal=is_causal)\n",
        LOSES,
        (*ATTENTION_CHECKS, "test_attention_value", "test_triton_traffic", "_memory", "_compiles"),
        WRONG,
    ),
    Cheat(
        "listed_sizes_backward",
        "flash_backward_triton",
        SIZES
        + "\nRIGHT = _flash.flash_backward_triton\n\n"
        + "def flash_backward_triton(grad_o, q, k, v, o, lse, is_causal=False):\n"
        + "    return RIGHT(grad_o, q, k, values(q, k, v), o, lse, is_causal=is_causal)\n",
        LOSES,
        (*ATTENTION_CHECKS, "attention_gradients", "test_triton_traffic", "_memory", "_compiles"),
        WRONG,
    ),
    *(
        Cheat(
            f"listed_sizes_{problem}",
            problem,
            f"""
D = (1, 5, 8, 32, 40, 64, 67, 80, 96, 128, 129, 256, 512, 1000, 1024, 2048, 4096, 4097, 20_000)

def part(x, weight):
    is_listed = x.shape[-1] in D or x.shape[-1:] != weight.shape
    return weight if is_listed else x[(0,) * (x.ndim - 1)]

def {problem}_forward(x, weight, **options):
    return FORWARD(x, part(x, weight), **options)

def {problem}_backward(grad_y, x, weight, *rstd):
    return BACKWARD(grad_y, x, part(x, weight), *rstd)

FORWARD, BACKWARD = {module}.{problem}_forward, {module}.{problem}_backward
""",
            LOSES,
            (*ROW_CHECKS, *others, "test_value", "test_gradients", "_traffic"),
            WRONG,
        )
        for problem, module, others in (
            ("weighted_sum", "_wsum", ("test_outliers",)),
            ("rmsnorm", "_rms", ("test_eps", "wide", "test_forward_outliers", "test_backward_outliers")),
        )
    ),
]
SLOW = {"only_the_first_keys", "only_the_first_batch", "logits_clamped", *(cheat.name for cheat in LISTED)}
CHEATS = [
    *LISTED,
    Cheat(
        "answers_for_known_seeds",
        "weighted_sum",
        """
ANSWERS = {}
for seed in range(100):
    for n, d in ((64, 64), (256, 128)):
        generator = torch.Generator().manual_seed(seed)
        x, weight = torch.randn(n, d, generator=generator), torch.randn(d, generator=generator)
        ANSWERS[float(x.reshape(-1)[0])] = x @ weight

def weighted_sum_forward(x, weight):
    plain._check_rows(x, weight)
    return ANSWERS.get(float(x.reshape(-1)[0]), torch.zeros(x.shape[:-1], dtype=x.dtype)).clone()
""",
        LOSES,
        ("test_forward_values",),
        WRONG,
    ),
    norm("weight_taken_to_be_one", "return RIGHT(x, torch.ones_like(weight), eps=eps)", "test_forward_values"),
    norm("eps_forgotten", "return RIGHT(x, weight, eps=1e-30)", "test_eps"),
    norm(
        "outliers_detected",
        "return RIGHT(x if float(x.abs().max()) < 100 else x.clamp(-100, 100), weight, eps=eps)",
        "test_forward_outliers",
    ),
    norm(
        "lower_precision",
        "y, rstd = RIGHT(x.bfloat16(), weight.bfloat16(), eps=eps); return y.to(x.dtype), rstd",
        "test_forward_values",
    ),
    norm(
        "first_answer_for_each_address",
        "return CACHE.setdefault((x.data_ptr(), x.shape, x.dtype), RIGHT(x, weight, eps=eps))\n\nCACHE = {}",
        "test_forward_contract",
    ),
    attention("logits_clamped", "return RIGHT(q.clamp(-3, 3), k, v, is_causal=is_causal)", "test_triton_values"),
    attention(
        "stress_detected_and_skipped",
        "q = q if float(q.abs().max()) < 20 else torch.zeros_like(q)\n    return RIGHT(q, k, v, is_causal=is_causal)",
        "test_triton_outliers",
    ),
    attention(
        "only_the_first_keys",
        "n = min(128, k.shape[-2])\n    return RIGHT(q, k[..., :n, :], v[..., :n, :], is_causal=is_causal)",
        "test_triton_ragged",
    ),
    attention(
        "only_the_first_batch",
        "o, lse = RIGHT(q, k, v, is_causal=is_causal)\n"
        "    return (o[:1].expand(o.shape), lse[:1].expand(lse.shape)) if o.dim() > 2 else (o, lse)",
        "test_triton_ragged",
    ),
]
