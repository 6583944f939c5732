"""What becomes of a case: its status, what to tell the student, and what else the score and the report are made of."""

import base64
import functools
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, TypeAlias, cast

import pytest

from assignment import failure, text
from assignment.judge import words
from assignment.judge.door import Run
from assignment.judge.errors import SubmissionError
from assignment.plugin.fixtures import SEARCHED, import_error
from assignment.protocol.said import Said, joined
from assignment.verdict import finding, score
from assignment.verdict.case import Case, margins_of
from assignment.verdict.entries import Tiles
from assignment.verdict.finding import Finding
from tests import compare

if TYPE_CHECKING:
    from assignment.timing.speed import Speed  # loaded where there is a GPU

Door: TypeAlias = "Run | Speed | None"  # through which a test asked the submission; None if it got none


def case_of(item: pytest.Item, call: pytest.CallInfo, report: pytest.TestReport) -> Case:
    """Return the case that a test of the submission was; what fails on the way is noted for the staff."""
    fixtures, staff = getattr(item, "funcargs", {}), list[str]()
    run: Run | None = fixtures.get("run")
    speed: Speed | None = fixtures.get("speed")
    door = run or speed
    error = call.excinfo.value if call.excinfo else None
    status, said = verdict(item, error, door, staff)
    wrong = error if isinstance(error, compare.Mismatch) and not is_unplayed(door) else None
    refused = error if isinstance(error, SubmissionError) else None
    margins = [*margins_of(report), *([wrong.margin] if wrong else [])]
    kept = failure.diagnosed("no likely cause was looked for", lambda: packed(item, wrong, run), "", staff)
    drawn = failure.diagnosed("no map was drawn", lambda: map_of(wrong), None, staff)
    staff += failure.diagnosed("the simulator was not asked", lambda: on_gpu_alone(wrong, run), list[str](), staff)
    steps = (
        failure.diagnosed("no steps were told", run.steps, list[str](), staff) if run and status == score.FAIL else []
    )
    launches = failure.diagnosed("no launches were drawn", run.drawn, b"", staff) if run and error else b""
    printed = run.printed() if run and status == score.OK else []
    return Case(
        name=item.name.partition("[")[2].removesuffix("]"),
        status=status,
        message=door.in_context(said.text) if door and said.text and status != score.TO_DO else said.text,
        margin=max(margins, default=None),
        ran=refused is None or refused.ran,
        notes=tuple(door.notes if door else ()),
        measured=speed.measured if speed else "",
        timing=speed.timing if speed else None,
        share=getattr(error, "share", None),  # of a TooSlow, the one exception that has it
        cheated=tuple(door.evidence if door else ()),
        wrong=kept,
        size=sum(tensor.numel() for tensor in run.tensors) if run else 0,
        map=drawn,
        moved=tuple(run.moved) if run else (),
        lanes=tuple(run.lanes) if run else (),
        compiled=tuple(run.kernels) if run else (),
        steps=tuple(steps),
        drawn=base64.b64encode(launches).decode(),
        printed=tuple(text.line(line) for line in words.beginning_and_end(printed)),
        n_printed=len(printed),
        staff=tuple(staff),
        finding=finding_of(status, said, error, door),
        import_error=import_error(item.config),
    )


def packed(item: pytest.Item, wrong: compare.Mismatch | None, run: Run | None) -> str:
    """Return a wrong result for the search for causes; nothing where none follows."""
    if wrong is None or not wrong.expected or run is None or SEARCHED not in item.config.stash:
        return ""
    from assignment.verdict.search import WrongResult  # a failure in it must cost no grade

    return WrongResult(run.asked, run.tensors, wrong.got, wrong.expected).packed()


def on_gpu_alone(wrong: compare.Mismatch | None, run: Run | None) -> list[str]:
    """Return what staff hear of a result that is right in the simulator and wrong on a GPU."""
    margin = run.margin_in_simulator(wrong.expected) if run and wrong and wrong.expected else None
    if wrong is None or margin is None:
        return []
    return [f"on the GPU {wrong.margin:.3g} times the bound, in the simulator {margin:.2g} of it"]


def map_of(wrong: compare.Mismatch | None) -> Tiles | None:
    """Return where a result is wrong, as plain data."""
    return cast(Tiles, asdict(wrong.map)) if wrong and wrong.map else None


def verdict(item: pytest.Item, error: BaseException | None, door: Door, staff: list[str]) -> tuple[str, Said]:
    """Return the status of a case and what to tell the student, without the call."""
    status, message = outcome(item.config.getoption("inline"), error, door, staff)
    evidence = [shown for texts in door.evidence.values() for shown in texts] if door else []
    if door and evidence and status in (*score.KEEPS_POINTS, score.FAIL):
        return score.FAIL, joined([message, *evidence])
    if isinstance(door, Run) and is_unplayed(door) and status == score.FAIL:
        return status, joined(door.unplayed)
    return status, message


def is_unplayed(door: Door) -> bool:
    """Return whether an operation took part that is not played, so that nothing is known of what came out."""
    return isinstance(door, Run) and bool(door.unplayed) and not door.evidence


def finding_of(status: str, said: Said, error: BaseException | None, door: Door) -> Finding | None:
    """Return what is wrong with a case; None where nothing is, or nothing was graded."""
    if status in (score.OK, score.TO_DO, score.NOT_GRADED):
        return None
    if status != score.FAIL:
        return Finding(status, said.text, said.places)
    wrong = error.wrong if isinstance(error, compare.Mismatch) and not is_unplayed(door) else None
    numbers = {} if wrong is None else {"wrong": wrong.wrong, "nan": wrong.nan, "elements": wrong.elements}
    kind = finding.NOT_THE_WORK if door and door.evidence else kind_of(error, door)
    kind = finding.NOT_PLAYED if is_unplayed(door) else kind
    if isinstance(error, SubmissionError):
        return replace(error.finding, kind=kind, says=said.text, places=said.places)
    return Finding(kind, said.text, said.places, "", wrong.name if wrong else "", numbers)


def kind_of(error: BaseException | None, door: Door) -> str:
    """Return the kind of what a test has met."""
    match error:
        case SubmissionError():
            return error.finding.kind
        case compare.TooMuchMoved():
            return finding.TOO_MUCH_MOVED
        case compare.Mismatch(wrong=compare.Wrong()):
            return finding.NEVER_STORED if isinstance(door, Run) and door.unstored else finding.WRONG_VALUES
    return finding.OTHER if getattr(error, "share", None) is None else finding.TOO_SLOW


def outcome(is_inline: bool, error: BaseException | None, door: Door, staff: list[str]) -> tuple[str, Said]:
    """Return the status of a case by itself, and its message."""
    if error is None:
        doubts = door.doubts if door else []
        return score.NEEDS_REVIEW if doubts else score.OK, joined(doubts)
    if isinstance(error, SubmissionError) and door:
        staff += [error.staff] if error.staff else []
        return error.status, Said(str(error), error.finding.places)
    if isinstance(error, AssertionError) and door:
        plain = Said(str(error), joined(door.problems if isinstance(door, Run) else door.doubts).places)
        look = functools.partial(with_origins, error, plain, door)
        return score.FAIL, failure.diagnosed("the origin of a wrong value was not found", look, plain, staff)
    said = f"{type(error).__name__}: {error}"
    if is_inline:
        is_todo = isinstance(error, NotImplementedError)
        return (score.TO_DO, Said(str(error))) if is_todo else (score.FAIL, Said(said))
    return score.GRADER_ERROR, Said(f"{said}\nThis is not your code: please report it to the staff.")


def with_origins(error: AssertionError, plain: Said, door: Door) -> Said:
    """Return the message, with what kernels did that wrong values may come from; the map comes last.

    That is how their programs met, where that matters; if a result has a NaN, where one was made.
    """
    if not isinstance(error, compare.Mismatch) or not isinstance(door, Run):
        return plain
    origins: list[str | Said] = [*door.orders]
    if door.nans and any(x.isnan().any() for x in error.got):
        origins += ["  a kernel makes a NaN of numbers, ∞ − ∞, 0 · ∞, 0 / 0 or ∞ / ∞:", *door.nans]
    return joined([error.says, *origins, *(error.map.lines if error.map else [])]) if origins else plain
