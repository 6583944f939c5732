"""A recorder and its player together: they die together, and the player keeps what the recorder keeps."""

import re

import pytest
import torch
import triton

from assignment.judge import pair
from assignment.judge.replies import Failed, Fault, Ok, Raised
from assignment.protocol import requests
from assignment.sandbox.worker_client import WorkerDied
from assignment.simulator.triton_private import HAS_BLOCK_POINTERS
from assignment.submission import Submission
from assignment.tests.pairs import F, X, defined, request, result_of
from tests.operators import called

pytestmark = pytest.mark.long_file

# born and dying together

COUNT = "kept = []\n"
COUNTING = ("kept.append(copied(x))", "if x.shape[0] == 1:", "    import os; os._exit(3)", "return kept[0] * 1.0")


@pytest.mark.parametrize("kind", [requests.Call, requests.Costs, requests.Kept, requests.Backward])
def test_a_recorder_does_not_hear_what_the_simulator_draws(kind):
    """Host code could tell it to the kernels"""
    asked = kind(**called("weighted_sum"), options={}, order=5)
    assert pair._recorded_as(asked).order == 0


def test_both_begin_anew_when_a_recorder_dies(at):
    at.take(defined(*COUNTING, before=COUNT))
    assert torch.equal(result_of(at), X)
    assert torch.equal(result_of(at, X * 2), X)  # kept, and stale
    with pytest.raises(WorkerDied, match="exit status 3"):
        at.ask(F, X[:1])
    assert not at.pair._player.is_connected
    assert torch.equal(result_of(at, X * 2), X * 2)  # nothing of what was kept is there


def test_both_begin_anew_when_a_player_dies(at):
    at.take(defined("kept.append(copied(x))", "return kept[0] * 1.0", before=COUNT))
    assert torch.equal(result_of(at), X)
    at.pair._player.end_child()
    assert torch.equal(result_of(at, X * 2), X * 2)


def large():
    """A view that reaches over two gigabytes."""
    return torch.empty(1 << 29).as_strided((4, 50), (1 << 27, 1)).copy_(X)


def test_large_views_are_sent_to_the_same_processes(at):
    """As long as nothing is kept of them: to begin anew takes longer than most calls"""
    at.take(defined("return copied(x)"))
    result_of(at)
    before = [worker._channel for worker in (at.pair.recorder, at.pair._player)]
    for _ in range(3):
        assert torch.equal(result_of(at, large()), X)
    assert [worker._channel for worker in (at.pair.recorder, at.pair._player)] == before


def test_who_keeps_a_large_view_is_begun_anew(at):
    at.take(defined("kept.append(x)", "return copied(x)", before=COUNT))
    for _ in range(8):  # that is more than a process can address
        assert torch.equal(result_of(at, large()), X)


def test_both_begin_anew_after_a_program_that_cannot_be_read(at):
    at.take(defined("kept.append(copied(x))", "return kept[0] * 1.0", before=COUNT))
    result_of(at)
    recorder = at.pair.recorder
    garbled = (({"status": "ok", "asked": False}), [torch.zeros(9, dtype=torch.uint8)])
    at.pair.recorder = type("Garbled", (), {"ask": lambda *_: garbled, "is_connected": True,
                                            "end_child": lambda _: recorder.end_child()})()  # fmt: skip
    try:
        assert at.ask(F, X)[0] == Failed("a malformed program")
    finally:
        at.pair.recorder = recorder
    assert torch.equal(result_of(at, X * 2), X * 2)


@pytest.mark.parametrize("came", [[], [torch.zeros(9)], [torch.zeros(9, dtype=torch.uint8)] * 2], ids=len)
def test_what_is_no_program_is_no_answer(at, came, monkeypatch):
    at.take(defined("return copied(x)"))
    monkeypatch.setattr(at.pair.recorder, "ask", lambda *_: ({"status": "ok", "asked": False}, came))
    assert at.pair.ask(request(F, "call", {}), [X]) == (None, [])


# calls that do not come to their end


def test_a_call_that_raises_is_played_up_to_there(at):
    """What its launches stored is there in the next call"""
    at.take(
        defined(
            "calls.append(1)", "if len(calls) == 2:", "    return kept.view(4, 50).clone()",
            "_copy[(4,)](x, kept, 200, 64)", "raise ValueError('the first time')",
            before="calls, kept = [], torch.zeros(200, device='cuda')\n",
        )
    )  # fmt: skip
    reply, _ = at.ask(F, X)
    assert (type(reply), reply.types[0], reply.in_kernel) == (Raised, "ValueError", False)
    assert "at cs336_kernels/weighted_sum.py:" in reply.message
    assert torch.equal(result_of(at, X * 2), X)


@pytest.mark.parametrize(
    ("file", "function", "words"),
    [
        ("weightedsum.py", F, "weighted_sum.py is missing.*; there is weightedsum.py: rename it"),
        ("weighted_sum.py", "weightedsum_forward", "has no function .*; there is weightedsum_forward: rename it"),
        ("weighted_sum.py", "weighted_sum_backward", "has no function weighted_sum_forward$"),
    ],
)
def test_a_name_that_is_nearly_right_is_told(at, file, function, words):
    at.pair.restart()
    at.stage.replace(Submission({f"cs336_kernels/{file}": f"def {function}(x):\n    return x\n".encode()}))
    reply, _ = at.ask(F, X)
    assert isinstance(reply, Failed)
    assert re.search(words, reply.message), reply.message


@pytest.mark.parametrize(
    "error",
    [
        "class E(Exception):\n    __str__ = lambda self: 1 / 0\n",
        "class E(Exception):\n    __str__ = lambda self: 7\n",
        "class M(type):\n    __name__ = property(lambda cls: 1 / 0)\nclass E(Exception, metaclass=M):\n    pass\n",
        "from assignment.host.submitted import Missing\nclass E(Missing):\n    __str__ = lambda self: 1 / 0\n",
    ],
    ids=["its text raises", "its text is a number", "its class has no name", "it is one of the grader's"],
)
@pytest.mark.parametrize("at_import", [False, True], ids=["in a call", "at import"])
def test_an_exception_that_cannot_be_read_is_the_submissions(at, error, at_import):
    at.take(defined("raise E", before=error + "raise E\n" * at_import))
    reply, _ = at.ask(F, X)
    assert isinstance(reply, Failed if at_import else Raised), reply
    assert "raise one of Python's own classes" in reply.message


@pytest.mark.parametrize(
    "view", ["torch.zeros(1).expand(100_000, 250_000)", "torch.zeros(9 << 15).as_strided((1 << 18, 1 << 15), (1, 1))"]
)
def test_a_view_of_more_elements_than_memory_holds_is_refused(at, view):
    at.take(defined("copied(x)", f"return {view}"))
    reply, _ = at.ask(F, X)
    assert isinstance(reply, Failed)
    assert "elements: expected at most" in reply.message


def test_what_pytorch_moves_is_counted_too(at):
    moved = []
    for body in ("return copied(x)", "return copied(x + 0)"):
        at.take(defined(body))
        moved.append(sum(int(figure.sum()) for figure in at.ask(F, X, kind="costs")[1][1:]))
    assert moved[1] >= moved[0] + X.nbytes


@pytest.mark.parametrize("kind", ["call", "gradients", "again", "largest", "costs", "kept"])
def test_what_is_not_written_yet_says_so(at, kind):
    """However it is asked for, and though nothing is there to be measured"""
    at.take(defined("raise NotImplementedError('handout/x.md')"))
    more = {"wrt": [0], "times": 1, "has_grad": False, "interleaved": False}
    reply, _ = at.ask(F, *([X, X] if kind == "again" else [X]), kind=kind, **(more if kind == "gradients" else {}))
    assert (type(reply), reply.types[0]) == (Raised, "NotImplementedError")
    assert reply.by_submission


@pytest.mark.parametrize(
    ("body", "is_todo"),
    [
        (("raise NotImplementedError('handout/weighted_sum.md')",), True),
        (("x = tl.load(x_ptr + tl.arange(0, 4))", "tl.store(y_ptr + tl.arange(0, 4), x.sort())"), False),
        (("tl.inline_asm_elementwise('nop', '=r,r', [tl.arange(0, 4)], dtype=tl.int32, is_pure=True, pack=1)",), False),
    ],
    ids=["a stub", "what Triton refuses", "what the simulator refuses"],
)
def test_a_kernel_is_to_do_only_where_it_says_so(at, body, is_todo):
    """Triton and the simulator raise NotImplementedError too, of kernels that are written"""
    kernel = "@triton.jit\ndef _kernel(x_ptr, y_ptr):\n" + "".join(f"    {line}\n" for line in body)
    at.take(defined("y = torch.zeros_like(x)", "_kernel[(1,)](x, y)", "return y", before=kernel))
    reply, _ = at.ask(F, X)
    assert (type(reply), reply.types[0]) == (Raised, "NotImplementedError"), reply
    assert reply.by_submission == is_todo


def test_a_fault_before_the_raise_is_the_fault(at):
    """A kernel that misuses memory is told of whatever became of the call"""
    at.take(defined("y = torch.empty_like(x)", "_copy[(9,)](x, y, 900, 64)", "raise ValueError('afterwards')"))
    reply, _ = at.ask(F, X)
    assert isinstance(reply, Fault)
    assert "of _copy " in reply.message


def test_an_exception_in_a_kernel_is_told_with_both_lines(at):
    code = "@triton.jit\ndef _bad(x_ptr):\n    tl.static_assert(False, 'never')\n"
    at.take(defined("_bad[(1,)](x)", "return copied(x)", before=code))
    reply, _ = at.ask(F, X)
    assert (type(reply), reply.in_kernel) == (Raised, True)
    assert "cs336_kernels/weighted_sum.py:" in reply.message


@pytest.mark.parametrize(
    ("line", "is_asserted"),
    [
        ("tl.static_assert(False, 'never')", True),
        ("assert tl.program_id(0) > 0, 'tl.static_assert: never'", False),
        ("tl.static_assert(x_ptr, 'never')", False),
        ("tl.static_assert(True, 'never')", False),
    ],
)
def test_only_a_static_assert_that_fails_drops_a_configuration(at, line, is_asserted):
    """As Triton's tuner does; not what says that it is one"""
    kernel = f"@triton.jit\ndef _bad(x_ptr):\n    {line}\n"
    at.take(defined("_bad[(1,)](x, debug=True)", "return copied(x)", before=kernel))
    at.ask(F, X)
    assert at.pair.has_asserted == is_asserted


@pytest.mark.parametrize("returned", ["None", "(x, 3)", "x.to_sparse()"])
def test_what_is_no_tensor_is_said(at, returned):
    at.take(defined("copied(x)", f"return {returned}"))
    reply, _ = at.ask(F, X)
    assert isinstance(reply, Failed)
    assert "expected a torch.Tensor" in reply.message or "expected a strided one" in reply.message


@pytest.mark.parametrize("name", ["t", "descriptor", "x", "self", "grid", "warmup", "kernel", "args"])
def test_a_parameter_may_have_any_name(at, name):
    """Also that of a tag of the program's, or of an argument of Triton's own; with a default value, too"""
    for named, pointer in ((f"{name}, y_ptr", name), (f"p_ptr, y_ptr, {name}=200", "p_ptr")):
        kernel = (
            f"@triton.jit\ndef _named({named}, SIZE: tl.constexpr = 256):\n    at = tl.arange(0, SIZE)\n"
            f"    tl.store(y_ptr + at, tl.load({pointer} + at, mask=at < 200), mask=at < 200)\n"
        )
        at.take(defined("y = torch.empty_like(x)", "_named[(1,)](x, y)", "return y", before=kernel))
        assert torch.equal(result_of(at), X)


def test_a_kernel_may_have_fields_that_this_launch_does_not_give_it(at):
    """Whatever was launched before: they are those of a NamedTuple of its file"""
    code = (
        "from typing import NamedTuple\nclass Scale(NamedTuple):\n    by_what: object\n"
        "@triton.jit\ndef _scaled(x_ptr, y_ptr, scale, IS_GIVEN: tl.constexpr):\n    at = tl.arange(0, 256)\n"
        "    x = tl.load(x_ptr + at, mask=at < 200)\n    if IS_GIVEN:\n        x = x * scale.by_what\n"
        "    tl.store(y_ptr + at, x, mask=at < 200)\n"
    )
    for given in ("0, False", "Scale(1.0), True"):
        at.take(defined("y = torch.empty_like(x)", f"_scaled[(1,)](x, y, {given})", "return y", before=code))
        assert torch.equal(result_of(at), X)


CONSTANTS = """
from typing import NamedTuple

class Tile(NamedTuple):
    size: int
    axis: int

TILE, NAMES, LISTED = tl.constexpr(Tile(64, 0)), tl.constexpr(("x", "y")), tl.constexpr([1, 2])
TYPE, WORD, NOTHING = tl.constexpr(tl.float32), tl.constexpr("hello"), tl.constexpr(None)

@triton.jit
def _length(names: tl.constexpr):
    return len(names) + 0

@triton.jit
def _of_constants(x_ptr, y_ptr, n, pair):
    tl.static_assert(len(NAMES) == 2 and LISTED[0] == 1, f"{pair}")
    tl.static_assert(pair[1].type == tl.constexpr_type(3))
    tl.static_assert(_length(NAMES) == 2)
    kept = tl.constexpr((5, 6))
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE) + (kept[1] - 6)
    if NOTHING is None:
        element: tl.constexpr = x_ptr.dtype.element_ty
        tl.static_assert(element == tl.float32, f"expected float32, got {element=}")
        tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n).to(TYPE), mask=at < n)
"""


@pytest.mark.parametrize(
    "line",
    [
        "at = tl.program_id(TILE.axis) * TILE.size + tl.arange(0, TILE.size) + (kept[1] - 6)",
        "at = tl.program_id(0) * 64 + tl.arange(0, TYPE.primitive_bitwidth * 2) + (kept[1] - 6)",
        "at = tl.program_id(0) * 64 + tl.arange(0, 64) * WORD.startswith('h') + (kept[1] - 6)",
    ],
)
def test_constants_are_what_the_compiler_sees(at, line):
    if triton.__version__ < "3.8":
        pytest.skip("members of a global constant are of use since Triton 3.8")
    before = CONSTANTS.replace("at = tl.program_id(0) * SIZE + tl.arange(0, SIZE) + (kept[1] - 6)", line)
    launch = "_of_constants[(4,)](x, y, 200, (x, tl.constexpr(3)))"
    at.take(defined("y = torch.empty_like(x)", launch, "return y", before=before))
    assert torch.equal(result_of(at), X)


@pytest.mark.parametrize("fields", ["fn: object", "load: int\n    run: object", "handle: int\n    dtype: object"])
def test_a_namedtuple_of_host_code_may_have_any_fields(at, fields):
    """Those that no kernel could use, and beside one of a name that kernels use: they are given none of it"""
    plan = f"from typing import NamedTuple\nclass Plan(NamedTuple):\n    {fields}\n"
    at.take(defined("plan = Plan(*[None] * len(Plan._fields))", "return copied(x)", before=plan))
    assert torch.equal(result_of(at), X)


@pytest.mark.parametrize(
    "options", ["do_not_specialize=frozenset({'n'})", "do_not_specialize=range(2, 3)", "debug=bool"]
)
def test_options_of_a_kernel_are_any_that_triton_takes(at, options):
    kernel = (
        f"@triton.jit({options})\ndef _of_options(x_ptr, y_ptr, n, SIZE: tl.constexpr):\n"
        "    at = tl.arange(0, SIZE)\n    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)\n"
    )
    at.take(defined("y = torch.empty_like(x)", "_of_options[(1,)](x, y, 200, SIZE=256)", "return y", before=kernel))
    assert torch.equal(result_of(at), X)


@pytest.mark.parametrize("pruned", ["set(configs)", "filter(None, configs)", "tuple(configs)"])
def test_what_is_left_after_pruning_is_any_collection(at, pruned):
    tuned = (
        "@triton.autotune([triton.Config({'SIZE': size}) for size in (256, 512)], key=['n'],\n"
        f"    prune_configs_by={{'early_config_prune': lambda configs, *_, **__: {pruned}}})\n"
        "@triton.jit\ndef _tuned(x_ptr, y_ptr, n, SIZE: tl.constexpr):\n"
        "    at = tl.arange(0, SIZE)\n    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)\n"
    )
    at.take(defined("y = torch.empty_like(x)", "_tuned[(1,)](x, y, 200)", "return y", before=tuned))
    assert torch.equal(result_of(at), X)


@pytest.mark.parametrize(
    "lines",
    [
        ("seen = []", "torch.vmap(lambda row: seen.append(row) or row)(x)", "return seen[0]"),
        ("y = copied(x)", "y.untyped_storage().resize_(0)", "return y"),
        ("return torch.nested.as_nested_tensor([x, x])",),
    ],
    ids=["of a transformation", "without its memory", "nested"],
)
def test_a_result_needs_memory(at, lines):
    at.take(defined(*lines))
    reply, _ = at.ask(F, X)
    assert isinstance(reply, Failed)
    assert "strided" in reply.message


# what is kept between calls


def test_a_cache_by_shape_plays_wrong(at):
    at.take(defined("if x.shape not in kept:", "    kept[x.shape] = copied(x)", "return kept[x.shape].clone()",
                    before="kept = {}\n"))  # fmt: skip
    assert torch.equal(result_of(at), X)
    assert torch.equal(result_of(at, X * 2), X)


def test_a_table_made_once_stays(at):
    fill = ("if not kept:", "    kept.append(torch.arange(50.0, device=x.device))")
    at.take(defined(*fill, "return copied(x * kept[0])", before="kept = []\n"))
    for inputs in (X, X * 2):
        assert torch.equal(result_of(at, inputs), inputs * torch.arange(50.0))


def test_what_was_made_at_import_is_there(at):
    """Its steps come with the first call's"""
    at.take(defined("return copied(x + table)", before="table = torch.arange(50.0, device='cuda') * 2\n"))
    for inputs in (X, X * 2):
        assert torch.equal(result_of(at, inputs), inputs + torch.arange(50.0) * 2)


def test_the_same_memory_twice_is_refused(at):
    at.take(defined("_copy[(4,)](x, kept, 200, 64)", "return kept.view(4, 50)",
                    before="kept = torch.zeros(200, device='cuda')\n"))  # fmt: skip
    result_of(at)
    reply, _ = at.ask(F, X)
    assert "in the memory of an earlier call's result" in reply.message


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (("x.mul_(2)", "return copied(x)"), "argument 0 was written to"),
        (("y = copied(x)", "x.zero_()", "x.copy_(y)", "return y"), "argument 0 was written to, by aten::zero_"),
        (("x.copy_(x)", "return copied(x)"), "argument 0 was written to, by aten::copy_"),
        (("torch.abs(x[1:], out=x[1:])", "return copied(x)"), "argument 0 was written to, by aten::abs"),
        (("x.view(-1)[:3].add_(0.0)", "return copied(x)"), "argument 0 was written to, by aten::add_"),
        (("return x.view(50, 4)",), "shares its memory with an input"),
        (("_copy[(4,)](x * 2, x, 200, 64)", "return copied(x)"), "input written to: program"),
    ],
)
def test_inputs_stay_as_they_are(at, lines, words):
    at.take(defined(*lines))
    reply, _ = at.ask(F, X)
    assert isinstance(reply, Failed | Fault)
    assert words in reply.message


# sequences in one request


def test_a_second_call_sees_what_was_overwritten_in_place(at):
    at.take(defined("return copied(x) * 2"))
    reply, results = at.pair.ask(request(F, "again", {}), [X, X + 1])
    assert isinstance(reply, Ok)
    assert [torch.equal(*pair) for pair in zip(results, (X * 2, X, X * 2 + 2, X + 1), strict=True)] == [True] * 4


def test_a_cache_by_address_is_wrong_after_it(at):
    at.take(defined("key = x.data_ptr()", "if key not in kept:", "    kept[key] = copied(x)", "return kept[key] * 1.0",
                    before="kept = {}\n"))  # fmt: skip
    _, results = at.pair.ask(request(F, "again", {}), [X, X + 1])
    assert torch.equal(results[2], X)


SAVED = """
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        {save}
        return copied(x * x)

    @staticmethod
    def backward(ctx, grad):
        {load}
        return copied(2 * x) * grad.contiguous()

last = []
def weighted_sum_forward(x):
    return Scale.apply(x)
"""


@pytest.mark.parametrize(
    ("save", "load", "is_right"),
    [
        ("ctx.save_for_backward(x)", "(x,) = ctx.saved_tensors", True),
        ("ctx.kept = x.clone()", "x = ctx.kept", True),
        ("last.append(x.clone())", "x = last[-1]", False),
    ],
    ids=["saved", "an attribute", "a global"],
)
def test_two_graphs_alive_at_once(at, save, load, is_right):
    """The gradient of the first is asked for when the second is there"""
    at.take(SAVED.format(save=save, load=load))
    more = {"wrt": [0], "times": 2, "has_grad": False, "interleaved": True}
    _, results = at.ask(F, X, kind="gradients", **more)
    for grad in results:
        assert torch.allclose(grad, 2 * X) == is_right


def test_what_is_kept_for_the_backward_pass_is_measured(at):
    at.take(SAVED.format(save="ctx.save_for_backward(x.clone(), x)", load="x, _ = ctx.saved_tensors"))
    reply, (kept, gradient) = at.ask(F, X, kind="kept")
    assert torch.equal(
        gradient, result_of(at, X, kind="gradients", wrt=[0], times=1, has_grad=False, interleaved=False)
    )
    assert (type(reply), int(kept)) == (Ok, X.untyped_storage().nbytes())


def test_the_largest_tensor_is_seen(at):
    at.take("def flash_forward_pytorch(x):\n    return (x[:, :, None] * x[:, None]).sum(-1)\n")
    _, (_, largest) = at.ask("flash_forward_pytorch", X, kind="largest")
    assert int(largest) == 4 * 50 * 50


LEFT_ON = {
    "dispatch": """
from torch.utils._python_dispatch import TorchDispatchMode
class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))
Mode().__enter__()
""",
    "function": """
from torch.overrides import TorchFunctionMode
class Mode(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))
Mode().__enter__()
""",
}


@pytest.mark.parametrize("mode", LEFT_ON.values(), ids=LEFT_ON)
def test_a_mode_that_is_left_on_is_taken_off(at, mode):
    """By the import and by every call"""
    at.take(defined("Mode().__enter__()", "return copied(x) if x.is_cuda else x", before=mode))
    for _ in range(3):
        assert torch.equal(result_of(at), X)


BLOCK_POINTER = """
@triton.jit
def _loaded(at):
    return tl.load(at, boundary_check=(0,), padding_option="zero")

@triton.jit
def _warned_of(x_ptr, y_ptr, n: tl.constexpr):
    x = _loaded(tl.make_block_ptr(x_ptr, (n,), (1,), (0,), (256,), (0,)))
    tl.store(tl.make_block_ptr(y_ptr, (n,), (1,), (0,), (256,), (0,)), x, boundary_check=(0,))
"""
REORDERED = """
@triton.jit
def _warned_of(x_ptr, y_ptr, n: tl.constexpr):
    at = tl.arange(0, 128)
    both = tl.cat(at, at + 128, can_reorder=True)
    tl.store(y_ptr + both, tl.load(x_ptr + both, mask=both < n, other=0.0), mask=both < n)
"""


def test_what_triton_warns_of_does_not_hide_what_is_printed(at):
    """Of block pointers before they were removed, and of a concatenation without order since."""
    kernel = BLOCK_POINTER if HAS_BLOCK_POINTERS else REORDERED
    at.take(defined("y = torch.empty_like(x)", "_warned_of[(1,)](x, y, x.numel())", "return y", before=kernel))
    at.pair.forget_output()
    assert torch.equal(result_of(at), X)
    assert at.pair.output() == ""
