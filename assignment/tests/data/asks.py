"""A kernel that asks which GPU it is compiled for, compiled for two: a product of matrices on the first alone."""

from assignment import compiling

compiling.install()

import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from assignment.compiling import build, launches  # noqa: E402
from assignment.compiling.targets import TARGETS  # noqa: E402


@triton.jit
def asks(x_ptr, SIZE: tl.constexpr):
    if not tl.target_info.cuda_capability_geq(10, 0):
        at = x_ptr + tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
        x = tl.load(at)
        tl.store(at, tl.dot(x, x))


noted = []
for name in ("a100", "b200"):
    with launches.recorded(TARGETS[name]) as found:
        asks[(1,)](torch.zeros(64, 64), SIZE=64)
        noted += found
print([bool(kernel.shared) for kernel in build.kernels(noted)])
