"""What the grader takes from a worker's reply: only what our own worker program could have written.

A submission can make its worker say anything. Whatever passes here has the right type, a bounded size, and text that is
safe to show; keys that are not named here go no further.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from assignment import text
from assignment.compiling import kernel
from assignment.compiling.targets import TARGETS
from assignment.protocol.requests import MAX_NOTES

UNREADABLE = "the result cannot be read: it is not what the grader's own program would send"
MAX_GROUPS = 64
MAX_COMPILED = 300  # kernels
MAX_TUNED = 10_000  # launches
MAX_TYPES = 100  # of an exception: its class and those above it
MAX_NAME = 200  # characters
LINES = ("name", "place", "constants", "config", "spilled_at")  # of a kernel
SAID = ("notes", "evidence", "doubts", "nans", "reads")  # beside the results


def read(reply: dict[str, Any], n_results: int) -> dict[str, Any] | None:
    """The reply with its texts made safe; None where it is none."""
    status = reply.get("status")
    if status == "ok":
        return _ok(reply, n_results)
    if n_results:
        return None
    if status == "raised":
        return _raised(reply)
    if status == "compiled":
        return _compiled(reply)
    if status in ("failed", "fault") and isinstance(message := reply.get("message"), str):
        return {"status": status, "message": text.clean(message)}
    return None


def recorded(reply: dict[str, Any]) -> dict[str, Any] | None:
    """What a recorder says beside its program; None where it is none."""
    asked = bool(reply.get("asked"))
    said = {"status": "ok"} if reply.get("status") == "ok" else read(reply, 0)
    return {**said, "asked": asked} if said and said["status"] in ("ok", "raised", "failed") else None


def is_program(tensors: list[Tensor]) -> bool:
    """Whether these are what goes with such a reply: bytes."""
    return len(tensors) == 1 and tensors[0].dtype == torch.uint8


def _ok(reply: dict[str, Any], n_results: int) -> dict[str, Any] | None:
    groups, bare = reply.get("groups"), reply.get("bare")
    said = {name: reply.get(name, []) for name in SAID}
    if not isinstance(groups, list) or len(groups) > MAX_GROUPS or not isinstance(bare, bool):
        return None
    if not all(type(size) is int and size >= 0 for size in groups) or sum(groups) != n_results:
        return None
    if (bare and groups[:1] != [1]) or not all(_are_texts(texts, MAX_NOTES) for texts in said.values()):
        return None
    cleaned = {name: [text.clean(line) for line in texts if line] for name, texts in said.items()}
    return {"status": "ok", "groups": groups, "bare": bare, **cleaned, **_timed(reply)}


def _timed(reply: dict[str, Any]) -> dict[str, Any]:
    """What is measured on a GPU: the seconds of a call, the bytes that it takes, the seconds of tuned launches."""
    found: dict[str, Any] = {}
    if isinstance(seconds := reply.get("events_s"), float):
        found["events_s"] = seconds
    if type(peak := reply.get("peak")) is int:
        found["peak"] = peak
    tuned = reply.get("tuned")
    if isinstance(tuned, list) and len(tuned) <= MAX_TUNED and all(isinstance(seconds, float) for seconds in tuned):
        found["tuned"] = tuned
    return found


def _compiled(reply: dict[str, Any]) -> dict[str, Any] | None:
    listed, stopped = reply.get("kernels"), reply.get("stopped")
    if not isinstance(listed, list) or len(listed) > MAX_COMPILED or not isinstance(stopped, dict):
        return None
    if not stopped.keys() <= TARGETS.keys() or not _are_texts([*stopped.values()], len(TARGETS)):
        return None
    kernels = [kernel.read(item) for item in listed]
    if not all(kernels):
        return None
    return {
        "status": "compiled",
        "kernels": [_safe(item) for item in kernels if item],
        "stopped": {name: text.clean(why) for name, why in stopped.items()},
    }


def _safe(told: kernel.Kernel) -> kernel.Kernel:
    """A kernel whose texts can be shown."""
    safe: dict[str, Any] = {"error": text.clean(told.error)}
    safe |= {name: text.line(getattr(told, name)[:MAX_NAME]) for name in LINES}
    safe |= {name: tuple(map(text.clean, getattr(told, name))) for name in ("instructions", "remarks")}
    return replace(told, **safe)


def _raised(reply: dict[str, Any]) -> dict[str, Any] | None:
    types, texts = reply.get("types"), {name: reply.get(name) for name in ("message", "text")}
    flags = {name: reply.get(name) for name in ("by_submission", "in_kernel")}
    if not _are_texts(types, MAX_TYPES) or not _are_texts([*texts.values()], len(texts)):
        return None
    if not all(isinstance(flag, bool) for flag in flags.values()):
        return None
    names = [text.clean(name, max_lines=1, max_line=MAX_NAME) for name in types or []]
    return {"status": "raised", "types": names, **{k: text.clean(str(v)) for k, v in texts.items()}, **flags}


def _are_texts(values: Any, at_most: int) -> bool:
    return isinstance(values, list) and len(values) <= at_most and all(isinstance(value, str) for value in values)


def fits(kind: str, groups: list[list[Tensor]], n_tensors: int, request: dict[str, Any]) -> bool:
    """Whether the groups of results are those that this kind of request has."""
    sizes = [len(group) for group in groups]
    if kind == "gradients":
        return sizes == [len(request["wrt"])] * request["times"]
    if kind == "again":
        inputs = n_tensors // 2
        return len(sizes) == 4 and sizes[1] == sizes[3] == inputs and sizes[0] == sizes[2] > 0
    if kind == "costs":
        return len(sizes) == 2 and are_figures(groups[1], [(n_tensors,), (n_tensors,), (sizes[0],)])
    if kind == "largest":
        return len(sizes) == 2 and are_figures(groups[1], [()])
    if kind == "kept":
        return len(sizes) == 2 and are_figures(groups[0], [()]) and sizes[1] == n_tensors
    return len(sizes) == 1


def are_figures(tensors: list[Tensor], shapes: list[tuple[int, ...]]) -> bool:
    """Whether these are counts, in these shapes."""
    return [tuple(tensor.shape) for tensor in tensors] == shapes and all(
        tensor.dtype == torch.int64 and bool((tensor >= 0).all()) for tensor in tensors
    )
