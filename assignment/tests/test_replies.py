"""What the grader takes from a reply: nothing but what its own worker program writes."""

from typing import Any

import pytest
import torch

from assignment import text
from assignment.compiling.kernel import Kernel
from assignment.judge import replies, returned
from assignment.judge.replies import Compiled, Failed, Fault, Ok, Raised, Recorded
from assignment.protocol.replies import written
from assignment.protocol.said import Said, SourceLine
from assignment.tests.pairs import request

OK: Any = {
    "status": "ok", "groups": [2, 1], "bare": False,
    "notes": ["never stored: 3 of 4 elements"], "evidence": [], "doubts": [], "nans": [], "reads": [],
}  # fmt: skip
RAISED: Any = {"status": "raised", "types": ["KeyError", "LookupError", "Exception", "BaseException", "object"],
          "message": "KeyError: 'q'\n  at cs336_kernels/x.py:3", "text": "'q'", "by_submission": True,
          "in_kernel": False}  # fmt: skip
FAILED: Any = {"status": "failed", "message": "returned None, expected a torch.Tensor"}
FAULT: Any = {"status": "fault", "kind": "race", "message": "race: two programs touch y[0]"}
KERNEL = Kernel("_copy_kernel", "cs336_kernels/x.py", 3, "h100", shared=512, registers=32, instructions=("wgmma",))
COMPILED: Any = {
    "status": "compiled",
    "kernels": [KERNEL.as_json()],
    "stopped": {"a100": {"text": "ValueError: no", "places": []}},
    "refused": {"b200": {"text": "num_warps", "places": []}},
}
NO_KERNELS: list[Any] = [None, {}, [None], [[]], [{}], [KERNEL.as_json()] * 301]
NO_NOTES: list[Any] = [None, "text", [1], ["x"] * 100, [["x"]], {"x": "y"}]
NO_STOPS: list[Any] = [None, [], {"v100": "no"}, {"a100": 1}, {"a100": ["x"]}]
NO_TARGETS: list[Any] = [None, "v100", {}, []]
NO_TEXTS: list[Any] = [None, 1, ["x"], {"x": "y"}, True, 1.5]
NO_FLAGS: list[Any] = [None, 0, 1, "True", []]


def of(reply: dict[str, Any]) -> dict[str, Any]:
    """The fields of such a reply."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in reply.items() if k != "status"}


@pytest.mark.parametrize(
    ("reply", "n", "kind"),
    [(OK, 3, Ok), (RAISED, 0, Raised), (FAILED, 0, Failed), ({**FAILED, "fits": False}, 0, Failed), (FAULT, 0, Fault)],
)
def test_what_a_worker_says_is_taken_as_it_is(reply, n, kind):
    assert replies.read({**reply, "id": "00", "tensors": [], "storages": []}, n) == kind(**of(reply))


@pytest.mark.parametrize(
    ("reply", "n"),
    [
        ({}, 0),
        *(({**OK, "status": status}, 3) for status in (None, "", "OK", 0, ["ok"], {"ok": 1})),
        *(({**OK, "groups": groups}, 3) for groups in (None, 3, [3.0], [True, 2], [4, -1], [2], [2, 2], "21", [[3]])),
        ({**OK, "groups": [0] * 100 + [3]}, 3),
        *(({**OK, "bare": bare}, 3) for bare in (*NO_FLAGS, True)),
        *(({**OK, name: notes}, 3) for name in replies.SAID for notes in NO_NOTES),
        *(({**COMPILED, "kernels": kernels}, 0) for kernels in NO_KERNELS),
        *(({**COMPILED, "kernels": [{**KERNEL.as_json(), "target": name}]}, 0) for name in NO_TARGETS),
        *(({**COMPILED, name: stopped}, 0) for name in ("stopped", "refused") for stopped in NO_STOPS),
        *(({**FAILED, "message": message}, 0) for message in NO_TEXTS),
        *(({**FAILED, "fits": fits}, 0) for fits in NO_FLAGS),
        *(({**RAISED, name: value}, 0) for name in ("message", "text") for value in NO_TEXTS),
        *(({**RAISED, name: value}, 0) for name in ("by_submission", "in_kernel") for value in NO_FLAGS),
        *(({**RAISED, "types": types}, 0) for types in (None, "KeyError", [1], ["x"] * 101, {"KeyError": 1})),
        *((reply, 1) for reply in (RAISED, FAILED, FAULT, COMPILED)),
        *(({key: value for key, value in OK.items() if key != gone}, 3) for gone in ("status", "groups", "bare")),
        *(({key: value for key, value in RAISED.items() if key != gone}, 0) for gone in RAISED),
        *(({key: value for key, value in FAULT.items() if key != gone}, 0) for gone in FAULT),
    ],
)
def test_what_no_worker_says_is_none(reply, n):
    assert replies.read(reply, n) is None


@pytest.mark.parametrize("said", ["\x1b[2J", "\ud800", "x" * 1_000_000, "\n" * 1000 + "x", "\u202e\0"])
def test_texts_are_made_safe_where_they_enter(said):
    for reply, n in ((OK, 3), (RAISED, 0), (FAILED, 0), (FAULT, 0)):
        taken = replies.read({**reply, "message": said, "text": said, "types": [said], "notes": [said]}, n)
        assert taken
        for texts in vars(taken).values():
            for value in texts if isinstance(texts, tuple) else [texts]:
                if isinstance(value, str):
                    assert len(value) <= 2 * text.MAX_CHARACTERS
                    assert all(char.isprintable() or char == "\n" for char in value)


@pytest.mark.parametrize("said", ["\x1b[2J", "\ud800", "x" * 1_900, "\n" * 1000 + "x", "\u202e\0"])
def test_texts_of_kernels_are_made_safe(said):
    """Names and places are one line each, and short"""
    told: Any = {**KERNEL.as_json(), "error": said, "remarks": [said]}
    told |= dict.fromkeys(("name", "path", "config", "spilled_at"), said)
    stops = {"text": said, "places": []}
    taken = replies.read({**COMPILED, "kernels": [told], "stopped": {"a100": stops}, "refused": {"b200": stops}}, 0)
    assert isinstance(taken, Compiled)
    (kernel,) = taken.kernels
    lines = [getattr(kernel, name) for name in ("name", "path", "config", "spilled_at")]
    for value in (*lines, kernel.error, *kernel.remarks, taken.stopped["a100"].text, taken.refused["b200"].text):
        assert all(char.isprintable() or char == "\n" for char in value)
    assert all(len(line) <= replies.MAX_NAME and "\n" not in line for line in lines)


LINE: Any = {"says": "at cs336_kernels/x.py:3 in f", "path": "cs336_kernels/x.py", "line": 3}
NO_LINES: list[Any] = [None, "x.py:3", [3], [{**LINE, "line": "3"}], [{**LINE, "more": 1}], [LINE] * 17]


def test_lines_of_the_submission_are_read_as_fields():
    """Beside a message, and beside each text that is told with results"""
    taken = (
        replies.read({**FAULT, "places": [LINE]}, 0),
        replies.read({**OK, "evidence": [{"text": "x", "places": [LINE]}]}, 3),
    )
    assert isinstance(taken[0], Fault)
    assert isinstance(taken[1], Ok)
    assert (
        taken[0].places
        == taken[1].evidence[0].places
        == (SourceLine("at cs336_kernels/x.py:3 in f", "cs336_kernels/x.py", 3),)
    )


@pytest.mark.parametrize("lines", NO_LINES)
def test_what_is_no_line_is_refused(lines):
    assert replies.read({**FAULT, "places": lines}, 0) is None
    assert lines == NO_LINES[-1] or replies.read({**OK, "evidence": [{"text": "x", "places": lines}]}, 3) is None


def test_kernels_are_read():
    taken = replies.read({**COMPILED, "id": "00", "more": 1}, 0)
    assert taken == Compiled((KERNEL,), {"a100": Said("ValueError: no")}, {"b200": Said("num_warps")})
    assert replies.read(written(taken), 0) == taken


def test_constants_are_read():
    """Of each launch; what is no place, or a number of none, is nothing"""
    seen: Any = {"cs336_kernels/x.py:3:4:if": ["True"]}
    taken = replies.read({**OK, "constants": [seen], "constants_of": [0, 0]}, 3)
    assert isinstance(taken, Ok)
    assert (taken.constants, taken.constants_of) == ((seen,), (0, 0))
    without = replies.read(OK, 3)
    wrongs: Any = ([{"x.py:3": ["True"]}], [{**seen, "x.py:3:4:if": [1]}], [None], None)
    for wrong in wrongs:
        assert replies.read({**OK, "constants": wrong, "constants_of": [0]}, 3) == without
    strange: list[Any] = [[1], [-1], [True], [{}], ["0"], None]
    for numbers in strange:
        assert replies.read({**OK, "constants": [seen], "constants_of": numbers}, 3) == without


def test_nothing_else_goes_further():
    """A key that the grader does not know, and a note that says nothing"""
    assert replies.read({**OK, "score": 100, "kernels": ["a"], "notes": [""]}, 3) == Ok((2, 1), bare=False)


@pytest.mark.parametrize(("reply", "kind"), [({"status": "ok"}, None), (FAILED, Failed), (RAISED, Raised)])
def test_what_a_recorder_says_is_how_it_ended_and_whether_it_asked(reply, kind):
    """It has no results to speak of, and its kernels are the program's"""
    ended = kind and kind(**of(reply))
    assert replies.recorded({**reply, "asked": True, "groups": [1], "notes": ["a"]}) == Recorded(True, ended)


@pytest.mark.parametrize(
    ("reply", "is_stub"),
    [
        ({**RAISED, "types": ["NotImplementedError"], "is_stub": True}, True),
        ({**RAISED, "types": ["NotImplementedError"]}, False),
        ({**RAISED, "types": ["NotImplementedError"], "is_stub": 1}, False),
        ({**RAISED, "types": ["NotImplementedError"], "is_stub": True, "by_submission": False}, False),
        ({**RAISED, "types": ["ValueError"], "is_stub": True}, False),
        ({**FAILED, "is_stub": True}, False),
        ({"status": "ok", "is_stub": True}, False),
    ],
)
def test_a_stub_is_what_has_said_to_do(reply, is_stub):
    """One that raises ValueError, for example, would have its answer to every mistake"""
    taken = replies.recorded(reply)
    assert taken
    assert taken.is_stub == is_stub


@pytest.mark.parametrize(
    "reply", [{}, {"status": ["ok"]}, {**FAILED, "message": 1}, {**RAISED, "types": None}, FAULT, COMPILED]
)
def test_what_no_recorder_says_is_none(reply):
    assert replies.recorded(reply) is None


def test_a_program_is_bytes():
    data = torch.zeros(3, dtype=torch.uint8)
    assert returned.is_program([data])
    assert not any(map(returned.is_program, ([], [data, data], [data.to(torch.int8)])))


ONE, COUNT, COUNTS = torch.ones(3), torch.tensor(7), torch.tensor([7, 0])
HOW = {"wrt": [0, 1], "times": 2, "has_grad": False, "interleaved": False}


@pytest.mark.parametrize(
    ("kind", "groups", "right"),
    [
        ("call", [[ONE]], True),
        ("call", [[ONE], [ONE]], False),
        ("call", [], False),
        ("gradients", [[ONE, ONE], [ONE, ONE]], True),
        ("gradients", [[ONE, ONE]], False),
        ("gradients", [[ONE], [ONE, ONE, ONE]], False),
        ("again", [[ONE], [ONE], [ONE], [ONE]], True),
        ("again", [[], [ONE], [], [ONE]], False),
        ("again", [[ONE], [ONE], [ONE, ONE], [ONE]], False),
        ("again", [[ONE], [], [ONE], [ONE]], False),
        ("kept", [[COUNT], [ONE, ONE]], True),
        ("kept", [[torch.tensor(-7)], [ONE, ONE]], False),
        ("kept", [[torch.tensor(7.0)], [ONE, ONE]], False),
        ("kept", [[COUNTS], [ONE, ONE]], False),
        ("kept", [[COUNT]], False),
        ("largest", [[ONE], [COUNT]], True),
        ("largest", [[COUNT]], False),
        ("costs", [[ONE], [COUNTS, COUNTS, torch.tensor([7]), COUNT]], True),
        ("costs", [[ONE], [COUNTS, COUNTS, torch.tensor([7])]], False),
        ("costs", [[ONE], [COUNTS, COUNTS, COUNTS, COUNT]], False),
        ("costs", [[ONE], [COUNTS, COUNTS, torch.tensor([True]), COUNT]], False),
    ],
)
def test_groups_are_those_of_the_request(kind, groups, right):
    asked = request("rmsnorm", kind, HOW if kind == "gradients" else {})
    assert returned.fits(asked, groups, 2) is right
