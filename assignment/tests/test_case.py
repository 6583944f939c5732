"""What a judging process hands on of a case."""

import dataclasses
import json
import math
from types import SimpleNamespace
from typing import Any

import pytest

from assignment.verdict import case, score
from assignment.verdict.finding import Explanation, Finding, SourceLine

TIMING: Any = {"ratio": 0.5}
MAP: Any = {"name": "o[0]", "cells": ["+"]}
PLACES = (SourceLine("at x.py:3 in f", "x.py", 3),)

WHOLE = case.Case(
    name="d 64",
    status=score.FAIL,
    message="o: 3 of 4 elements wrong",
    margin=math.inf,
    ran=False,
    notes=("a note",),
    measured="fast",
    timing=TIMING,
    share=0.5,
    cheated=("rmsnorm",),
    hints=(Explanation("factor", "It is twice as large.", "handout/faq.md", "Look.", (2.0,), is_rare=True),),
    wrong="gASV",
    size=4,
    map=MAP,
    moved=({"tensor": "x", "bytes": 4, "least": 4},),
    lanes=("rank 0 moves █",),
    compiled=({"kernel": "k", "gpu": "H100"},),
    steps=("1", "2"),
    drawn="AA==",
    printed=("x = 1",),
    n_printed=1,
    staff=("s",),
    finding=Finding(
        "race",
        "race: y[3]",
        (SourceLine("at x.py:3 in f", "x.py", 3),),
        "X",
        "y",
        {"wrong": 1, "nan": 0, "elements": 9},
    ),
    import_error="SyntaxError",
)


def report(*properties) -> Any:
    return SimpleNamespace(user_properties=[*properties])


@pytest.mark.parametrize("told", [WHOLE, case.Case("", score.OK)], ids=["all of it", "as little as there may be"])
def test_a_case_is_the_same_after_a_way_as_json(told):
    way = json.loads(json.dumps(told.as_json()))
    assert case.held_by(report((case.MARGIN, 0.5), (case.PROPERTY, way))) == told


def test_no_field_is_left_out_above():
    assert not [f.name for f in dataclasses.fields(WHOLE) if getattr(WHOLE, f.name) == f.default]


def test_a_test_of_nothing_that_was_submitted_has_no_case():
    assert case.held_by(report(("margin", 0.5))) is None


def test_margins_are_those_that_the_test_has_recorded():
    assert case.margins_of(report(("margin", 0.25), ("other", 9), ("margin", 0.5))) == [0.25, 0.5]
