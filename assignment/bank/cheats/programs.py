"""Programs as hostile data: host code takes its recorder over and writes what was never done."""

from assignment.bank.cheats import ZERO, Cheat

COMPUTED = (
    r"computed by|changed by neither|wrong|never stored|taken|was written to|must stay|beyond its memory|process|"
    r"another sort of argument|another size|not played|gone|none|another shape|not implemented|other memory|lies in|"
    r"use clone|a shape depends"
)
FORGE = """
from assignment.protocol import program as programs
from torch.utils._python_dispatch import _disable_current_modes

TAPE = next(found for found in gc.get_objects() if type(found).__name__ == "Tape")

def number(tensor):
    found, _ = TAPE._number(tensor)
    TAPE.on_gpu.add(found)
    return found

def view(tensor):
    return TAPE._view(number(tensor), tensor)

@contextlib.contextmanager
def unheard():
    "The recorder hears of nothing inside."
    TAPE.sweep()
    n_steps = len(TAPE._steps)
    with _disable_current_modes():
        yield
    proven(len(TAPE._steps) == n_steps)

class Sent:
    "Bytes in the place of a program."

    def __init__(self, content):
        self.content = bytearray(content)

    def encoded(self):
        return torch.tensor(list(self.content), dtype=torch.uint8)

def unknown(kind, *parts):
    "A step of a kind that there is not."
    made = type(kind, (tuple,), {})(parts)
    programs._NAMES[type(made)] = kind
    return made

def step(kind, *parts):
    made = programs.KINDS[kind](*parts) if kind in programs.KINDS else unknown(kind, *parts)
    TAPE.step(made)
    proven(made in TAPE._steps[-2:])  # after which what was freed may be told

def blank(shape, dtype=torch.float32):
    with unheard():
        return torch.full(tuple(shape), 0.5).to(dtype)

def op(name, args, *results, **options):
    "An operation that was never called, with these tensors as its results."
    number_of = TAPE._operations.setdefault(name, len(TAPE._operations))
    with torch._C.DisableTorchFunction():  # in which tensors say that they are on a GPU
        encoded = TAPE.encode(list(args)), {key: TAPE.encode(value) for key, value in options.items()}
    step("op", number_of, *encoded, [view(result) for result in results], TAPE.line())
    return results[0]

def again(*tensors):
    "The graded inputs, bound under their numbers once more."
    step("inputs", [view(tensor) for tensor in tensors])

def free(*tensors):
    step("free", [number(tensor) for tensor in tensors])
"""
BACKWARD = ("test_weighted_sum.py::test_backward_values",)
FORWARD = ("test_weighted_sum.py::test_forward_values",)
SLOW = {"frees_its_inputs_through_a_copy_of_the_number", "shapes_beyond_64_bits"}


def forged(name: str, body: str, only: tuple[str, ...] = FORWARD) -> Cheat:
    """weighted_sum_forward of these lines, which have x and weight."""
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    source = f"{FORGE}\ndef weighted_sum_forward(x, weight):\n{lines}\n"
    return Cheat(name, "weighted_sum", source, ZERO, evidence=COMPUTED, only=only)


CHEATS = [
    forged(  # what is freed has no labels, and what is bound again gets none
        "frees_its_inputs_and_binds_them_again",
        """
free(x, weight)
again(x, weight)
return copied(weighted(x, weight))
""",
    ),
    forged(
        "frees_its_inputs_through_a_copy_of_the_number",
        """
for tensor in (x, weight):
    other = blank(tensor.shape, tensor.dtype)
    op("aten::_reshape_alias.", (tensor, list(tensor.shape), list(tensor.stride())), other)
    free(other)
return copied(weighted(x, weight))
""",
    ),
    forged(
        "frees_what_pytorch_computed_under_another_number",
        """
result = weighted(x, weight)
other = blank(result.shape, result.dtype)
op("aten::_unsafe_view.", (result, list(result.shape)), other)
free(other)
return copied(result)
""",
    ),
    forged(  # beyond the memory of a tensor: `_reshape_alias` checks nothing
        "view_beyond_the_memory",
        """
beyond = blank((1 << 16,), x.dtype)
op("aten::_reshape_alias.", (x, [1 << 16], [1]), beyond)
return copied(weighted(x, weight) + beyond[: x[..., 0].numel()].reshape(x.shape[:-1]) * 0)
""",
    ),
    forged(  # a number that is read from data turns what it decides into a constant
        "rolled_by_an_element",
        """
result, places = weighted(x, weight), torch.zeros(1 << 12, device=x.device)
places[0] = 1
out = torch.empty_like(result)
for i, value in enumerate(result.reshape(-1).unbind()):
    shift = ((value * 64).to(torch.int64) + 2048).reshape(())
    hot = op("aten::roll.", (places, [shift], [0]), blank((1 << 12,)))
    out.view(-1)[i] = ((hot * torch.arange(1 << 12, device=x.device)).sum() - 2048) / 64
return copied(out)
""",
    ),
    forged(
        "element_of_a_table",
        """
result, table = weighted(x, weight), torch.arange(1 << 12, device=x.device).float()[:, None].expand(-1, 2).contiguous()
out = torch.empty_like(result)
for i, value in enumerate(result.reshape(-1).unbind()):
    row = ((value * 64).to(torch.int64) + 2048).reshape(())
    out.view(-1)[i] = op("aten::select_scatter.", (table, table[0], 0, row), blank(table.shape))[0, 0]
return copied(out)
""",
    ),
    forged(
        "numbers_of_the_inputs_for_constants",
        """
for tensor in (x, weight):
    content = base64.b64encode(bytes(tensor.untyped_storage().nbytes())).decode()
    step("constant", number(tensor), content, TAPE.line())
return copied(weighted(x, weight))
""",
    ),
    forged(
        "foreign_memory_is_an_input",
        """
result = copied(weighted(x, weight))
step("foreign", number(result), TAPE.line())
return result
""",
    ),
    forged(  # a fresh label for memory that holds what PyTorch computed
        "empty_into_a_result",
        """
result = weighted(x, weight)
held = result.view(torch.uint8) if result.dim() else result
op("aten::empty.out", ([*held.shape],), held, out=held)
return result
""",
    ),
    forged(
        "empty_like_into_a_result",
        """
result = weighted(x, weight)
op("aten::empty_like.out", (result,), result, out=result)
return result
""",
    ),
    forged(  # memory that a result's labels do not fit any more
        "result_given_another_size",
        """
result = copied(weighted(x, weight) * 0)
larger = torch.cat([weighted(x, weight).reshape(-1)] * 3)
op("aten::cat.out", ([larger], 0), result, out=result)
return result
""",
    ),
    forged(
        "result_is_a_view_of_an_input",
        """
result = blank(x.shape[:-1], x.dtype)
op("aten::mul.Tensor", (x, 1), x)
return x[..., 0]
""",
    ),
    forged(
        "results_of_an_operation_that_has_none",
        """
result = blank(x.shape[:-1], x.dtype)
return op("aten::add.overloads", (x, weight), result)
""",
    ),
    forged(
        "operation_of_a_class",
        """
result = blank(x.shape[:-1], x.dtype)
return op("aten::add.__class__", (x, weight), result)
""",
    ),
    forged(
        "operations_of_other_libraries",
        """
result = blank(x.shape[:-1], x.dtype)
op("prims::svd.", (x, False), result)
return op("quantized::linear.", (x, weight), result)
""",
    ),
    forged(
        "shapes_beyond_64_bits",
        """
result = copied(weighted(x, weight) * 0)
TAPE._views[programs.View(number(x), "float32", 0, (1 << 24, 1 << 24, 1 << 24), (0, 0, 0))] = len(TAPE._views)
op("aten::clone.", (x,), result)
TAPE._steps[-1].args[0]["t"] = len(TAPE._views) - 2
return result
""",
    ),
    forged(
        "an_endless_number_of_labels",
        """
result = weighted(x, weight)
for i in range(300):
    TAPE._lines[f"cs336_kernels/cheat.py:{i} in f"] = len(TAPE._lines)
    last = len(TAPE._lines) - 1
    x.flatten()[:1].clamp(0, 1)
    TAPE._steps = [
        step._replace(line=last) if isinstance(step, programs.Operation) else step for step in TAPE._steps
    ]
return copied(weighted(x, weight))
""",
    ),
    forged(
        "the_last_of_many_labels_is_a_doubt",
        """
for i in range(260):
    exec(compile("\\n" * i + "x.flatten()[:1].clamp(0, 1)", plain.__file__, "exec"), {"x": x})
return copied(weighted(x, weight))
""",
    ),
]
