"""Styles of making and keeping memory: meta tensors, streams, workspaces, halves of numbers."""

import textwrap

from assignment.bank.operators.edits import style
from assignment.bank.operators.weighted_sum.styles.parts import (
    BACKWARD,
    FILES,
    FORWARD,
    NO_PARTIAL,
    PROBLEMS,
    above,
)

__all__ = ["FILES", "PROBLEMS", "STYLES"]

STYLES = (
    style(  # PyTorch works out shapes on meta tensors; buffers are resized to them
        "weighted_sum_meta_shapes",
        (
            "    y = torch.empty(n_rows, dtype=x.dtype, device=x.device)\n",
            "    y = _like(x_rows.to('meta') @ weight.to('meta'), x)\n",
        ),
        (
            "    grad_x = torch.empty((n_rows, d), dtype=x.dtype, device=x.device)\n"
            "    partial_grad_w = torch.empty((n_tiles, d), dtype=torch.float32, device=x.device)\n",
            """\
    with torch.device("meta"):
        shapes = torch.empty((n_rows, d), dtype=x.dtype), torch.empty((n_tiles, d), dtype=torch.float32)
    grad_x, partial_grad_w = (_like(meta, x) for meta in shapes)
""",
        ),
        above(
            """
def _like(meta, x):
    return torch.empty(0, dtype=meta.dtype, device=x.device).resize_(meta.shape)
"""
        ),
    ),
    style(  # as for production: device guards, streams, events, memory statistics, ranges of a profiler
        "weighted_sum_streams",
        ("import torch\n", "import contextlib\n\nimport torch\n"),
        above(
            '''
@contextlib.contextmanager
def side_stream(x):
    """Launch on a stream of our own, after what is under way and before what follows."""
    outer = torch.cuda.current_stream(x.device)
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.cuda.device(x.device))
        stack.enter_context(torch.cuda.nvtx.range("weighted_sum"))
        inner = torch.cuda.Stream(device=x.device, priority=-1)
        inner.wait_stream(outer)
        stack.enter_context(torch.cuda.stream(inner))
        assert torch.cuda.current_stream() == inner
        yield inner
        done = inner.record_event()
    outer.wait_event(done)
'''
        ),
        (
            "torch.empty(n_rows, dtype=x.dtype, device=x.device)",
            'torch.empty(n_rows, dtype=x.dtype, device=torch.device("cuda", torch.cuda.current_device()))',
        ),
        (
            f"    if n_rows > 0:\n{FORWARD}",
            f"""\
    if n_rows > 0 and not torch.cuda.is_current_stream_capturing():
        torch.cuda.reset_peak_memory_stats(x.device)
        with side_stream(x) as stream:
{textwrap.indent(FORWARD, "    ")}\
        y.record_stream(stream)
        assert torch.cuda.max_memory_allocated() <= torch.cuda.get_device_properties(x.device).total_memory
""",
        ),
        (
            NO_PARTIAL + BACKWARD,
            f"""\
    if n_rows == 0:
        return grad_x.reshape(x.shape), torch.zeros_like(weight)
    free, _ = torch.cuda.mem_get_info(x.get_device())
    if n_tiles * d * 4 > free:
        raise torch.cuda.OutOfMemoryError(f"expected {{n_tiles * d * 4}} bytes for partial sums, got {{free}}")
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with side_stream(x), torch.random.fork_rng(devices=[x.device]):
        device = torch.accelerator.current_accelerator()
        partial_grad_w = torch.empty((n_tiles, d), dtype=torch.float32, device=device)
        start.record()
{BACKWARD}\
        end.record()
    torch.accelerator.synchronize()
    if start.elapsed_time(end) > 60_000:
        raise TimeoutError("expected less than a minute")
""",
        ),
    ),
    style(  # asks about the GPU when it is imported, insists on it, and keeps a workspace there from call to call
        "weighted_sum_for_cuda",
        ("import triton.language as tl\n", "import triton.language as tl\nfrom triton.runtime import driver\n"),
        above(
            """
DEVICE = driver.active.get_active_torch_device()
N_MULTIPROCESSORS = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
IS_HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 9
ZERO = torch.zeros((), device="cuda")
WARPS = 8 if IS_HOPPER or N_MULTIPROCESSORS > 100 else 4
_workspaces: dict[int, torch.Tensor] = {}


def _workspace(n_tiles, d):
    if d not in _workspaces or len(_workspaces[d]) < n_tiles:
        _workspaces[d] = torch.empty((max(n_tiles, N_MULTIPROCESSORS), d), device=DEVICE)
    return _workspaces[d][:n_tiles]
"""
        ),
        ("torch.empty(n_rows, dtype=x.dtype, device=x.device)", 'torch.empty(n_rows, device="cuda", dtype=x.dtype)'),
        (
            f"    if n_rows > 0:\n{FORWARD}",
            f"""\
    if y.numel():
        with torch.cuda.device(x.device), torch.cuda.stream(torch.cuda.Stream()):
{textwrap.indent(FORWARD.replace("=D_TILE_SIZE", "=D_TILE_SIZE, num_warps=WARPS"), "    ")}\
        torch.cuda.synchronize()
""",
        ),
        ("grad_y.reshape(-1)", "grad_y.cuda().reshape(-1)"),
        (
            "torch.empty((n_rows, d), dtype=x.dtype, device=x.device)",
            "torch.empty((n_rows, d), dtype=x.dtype, device=DEVICE)",
        ),
        (
            NO_PARTIAL + BACKWARD,
            f"""\
    if not len(x_matrix):
        return grad_x.reshape(x.shape), ZERO.expand(d).to(weight.dtype).clone()
    partial_grad_w = _workspace(n_tiles, d)
    if n_rows > 0:
{BACKWARD}\
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        torch.cuda.current_stream().wait_event(event)
""",
        ),
        (
            "    if weight.shape != x.shape[-1:]:\n",
            """\
    assert x.is_cuda, "expected x on a GPU"
    assert weight.device == x.device
    if weight.shape != x.shape[-1:]:
""",
        ),
        (
            "        x, weight = ctx.saved_tensors\n",
            """\
        assert grad_y.is_cuda
        assert grad_y.device.type == "cuda"
        assert grad_y.get_device() == 0
        x, weight = ctx.saved_tensors
""",
        ),
    ),
    style(  # float32 sums are stored as halves of 16 bits, low and high, which the host reads as one number
        "weighted_sum_halves",
        (
            "torch.empty(n_rows, dtype=x.dtype, device=x.device)",
            "torch.empty((n_rows, 2), dtype=torch.int16, device=x.device)",
        ),
        ("    return y.reshape(", "    return y.view(torch.float32).to(x.dtype).reshape("),
        (  # zeros, of which an empty batch is the sum
            "torch.empty((n_tiles, d), dtype=torch.float32, device=x.device)",
            "torch.zeros((n_tiles, d, 2), dtype=torch.int16, device=x.device)",
        ),
        ("partial_grad_w.sum(dim=0)", "partial_grad_w.view(torch.float32)[..., 0].sum(0)"),
        ("    tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=row_mask)", "    _store_halves(y_ptrs, y, row_mask)"),
        (
            "        tl.store(partial_ptrs, partial, mask=in_cols)",
            "        _store_halves(partial_ptrs, partial, in_cols)",
        ),
        above(
            """
@triton.jit
def _store_halves(ptrs, values, mask):
    bits = values.to(tl.int32, bitcast=True)
    tl.store(ptrs, bits.to(tl.int16), mask=mask)
    tl.store(ptrs + 1, (bits >> 16).to(tl.int16), mask=mask)
"""
        ),
    ),
)
