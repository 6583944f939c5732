"""`python -m assignment.commands.doctor.probe NAME`: import a package and tell its version in JSON, or why it failed.

Of "cuda", tell what PyTorch says of it. This is a process of its own, which may crash or hang meanwhile.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

from assignment.commands.doctor.packages import in_words


def answer(what: str) -> dict[str, Any]:
    """Of a process of its own: what a package, or CUDA, says of itself."""
    try:
        if what == "cuda":
            return cuda()
        return {"problem": "", "version": str(getattr(importlib.import_module(what), "__version__", ""))}
    except BaseException as error:  # a package may raise anything on import
        return {"problem": in_words(root_of(error))}


def cuda() -> dict[str, Any]:
    """What PyTorch says of CUDA."""
    import torch

    told: dict[str, Any] = {"cuda": torch.version.cuda or ""}
    if not torch.version.cuda:
        return {**told, "problem": "torch is built without CUDA"}
    try:
        torch.cuda.init()
        return {**told, "name": torch.cuda.get_device_name(), "capability": torch.cuda.get_device_capability()}
    except Exception as error:  # RuntimeError and its kin, by the version
        return {**told, "problem": in_words(error)}


def root_of(error: BaseException) -> BaseException:
    """The error that an import began to fail with."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return error


if __name__ == "__main__":
    told = answer(sys.argv[1])
    print(f"\n{json.dumps(told)}", flush=True)
    os._exit(0)  # a package that fails on the way out does not fail on the way in
