"""What the registered operators return, and how far a right kernel may be from it: the models of what they wrap."""

from torch import Tensor

from tests.compare import Expected
from tests.flash_attention import models as attention
from tests.rmsnorm import models as rmsnorm


def rmsnorm_forward(x: Tensor, weight: Tensor, eps: float = 1e-5) -> dict[str, Expected]:
    return {"y": rmsnorm.rmsnorm_forward(x, weight, eps)["y"]}


def attention_forward(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> dict[str, Expected]:
    return {"o": attention.attention_forward(q, k, v, is_causal)["o"]}
