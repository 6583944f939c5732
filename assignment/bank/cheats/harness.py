"""Attacks on the harness from inside: exits, exceptions, patched modules of the grader, hooks, descriptors."""

from assignment.bank.cheats import HARMLESS, LOSES, OWN_LOSS, ZERO, Cheat

VALUES = ("test_weighted_sum.py::test_forward_values",)
ONE_CASE = ("test_weighted_sum.py::test_value",)  # which calls the forward function too
RIGHT = """
RIGHT = _wsum.weighted_sum_forward

def weighted_sum_forward(x, weight):
    {line}
    return RIGHT(x, weight)
"""
WITHOUT_KERNEL = """
def weighted_sum_forward(x, weight):
    return weighted(x, weight)

def weighted_sum_backward(grad_y, x, weight):
    return weighted_backward(grad_y, x, weight)
"""


def in_call(name: str, line: str, evidence: str, before: str = "") -> Cheat:
    """Done in each call of the forward function, in code that is right otherwise."""
    source = before + RIGHT.format(line=line)
    return Cheat(name, "weighted_sum", source, LOSES, ("test_value",), evidence, only=ONE_CASE)


def in_right_code(name: str, line: str, expected: str = HARMLESS, before: str = "", confined: bool = False) -> Cheat:
    breaks_python = expected == OWN_LOSS  # for every function of the process
    source = before + RIGHT.format(line=line)
    return Cheat(name, "weighted_sum", source, expected, hurts_all=breaks_python, confined=confined)


def at_import(name: str, source: str, evidence: str) -> Cheat:
    """At the end of weighted_sum.py: only what that file holds may be lost."""
    return Cheat(name, "weighted_sum", source, ZERO, evidence=evidence, file="weighted_sum.py")


def hiding(name: str, patch: str, expected: str = ZERO) -> Cheat:
    """No kernel at all, and the grader's own program patched so that this is not told."""
    evidence = r"kernel|cannot be read|process|raised|report|shape"
    return Cheat(name, "weighted_sum", WITHOUT_KERNEL + patch, expected, evidence=evidence, hurts_all=True)


PATCH_EVERYTHING = """
for name, module in list(sys.modules.items()):
    if name.startswith("assignment.") and any(part in name for part in {parts}):
        for attribute, value in list(vars(module).items()):
            if callable(value) and getattr(value, "__module__", "") == name and not isinstance(value, type):
                setattr(module, attribute, {replacement})
"""

SLOW = {
    "generator_exit",
    "base_exception",
    "pytest_xfail",
    "pytest_exit",
    "assertion_error_from_the_future",
    "abort",
    "keyboard_interrupt_at_import",
    "standard_streams_closed",
}
CHEATS = [
    in_call("exit_0", "os._exit(0)", r"exit status 0|ended"),
    in_call(
        "exit_0_by_a_signal_handler",
        "signal.raise_signal(signal.SIGTERM)",
        r"exit status|SIGTERM|ended",
        "signal.signal(signal.SIGTERM, lambda *_: os._exit(0))\n",
    ),
    in_call("sys_exit", "sys.exit(0)", r"SystemExit"),
    in_call("keyboard_interrupt", "raise KeyboardInterrupt", r"KeyboardInterrupt"),
    in_call("generator_exit", "raise GeneratorExit", r"GeneratorExit"),
    in_call("base_exception", "raise type('Outcome', (BaseException,), {})('passed')", r"Outcome"),
    in_call("pytest_skip", "import pytest; pytest.skip('passed', allow_module_level=True)", r"Skipped|No module"),
    in_call("pytest_xfail", "import pytest; pytest.xfail('passed')", r"XFailed|Failed|No module"),
    in_call("pytest_exit", "import pytest; pytest.exit('passed', 0)", r"Exit|No module"),
    in_call(
        "assertion_error_from_the_future",
        "raise NotImplementedError.with_traceback(TypeError('x'), None)",
        r"TypeError",
    ),
    in_call("abort", "ctypes.CDLL(None).abort()", r"SIGABRT"),
    in_call("segmentation_fault", "ctypes.string_at(0)", r"SIGSEGV"),
    at_import("exit_0_at_import", "import os\nos._exit(0)\n", r"exit status 0|ended|not run"),
    at_import("system_exit_at_import", "raise SystemExit(0)\n", r"SystemExit"),
    at_import("keyboard_interrupt_at_import", "raise KeyboardInterrupt\n", r"KeyboardInterrupt"),
    in_right_code(
        "exit_at_the_end",
        "pass",
        before="""
import atexit

atexit.register(os._exit, 0)
atexit.register(print, "Score: 80/80")
""",
    ),
    in_right_code("working_folder_changed", "os.chdir('/')"),
    in_right_code(
        "environment_emptied", "os.environ.clear(); os.environ.update(TRITON_INTERPRET='0', PATH='/nowhere')"
    ),
    in_right_code(
        "path_and_modules_emptied",
        "pass",
        OWN_LOSS,
        before="""
sys.path.clear()
for name in [name for name in sys.modules if name.startswith(("assignment", "json"))]:
    sys.modules[name] = None
""",
    ),
    in_right_code(
        "staged_files_deleted",
        "remove()",
        before="""
def remove():
    import shutil

    folder = Path(__file__).resolve().parent
    if not (folder.parent / "pyproject.toml").exists():  # never a checkout
        shutil.rmtree(folder, ignore_errors=True)
""",
        confined=True,
    ),
    in_right_code(
        "files_of_others_truncated",
        "pass",
        before="""
for path in [*Path(__file__).resolve().parents[1].rglob("*.py")]:
    if path.name in ("rmsnorm.py", "triton_forward.py") and not (path.parents[1] / "pyproject.toml").exists():
        with contextlib.suppress(OSError):
            path.write_text("raise SystemExit(0)")
""",
        confined=True,
    ),
    in_right_code("standard_streams_replaced", "sys.stdout = sys.stderr = sys.__stdout__ = None"),
    in_right_code("standard_streams_closed", "os.close(1) if 1 in OPEN else None; OPEN.clear()", before="OPEN = {1}\n"),
    in_call("all_descriptors_closed", "os.closerange(0, 4096)", r"ended|lost|closed|read|answer|died"),
    in_call(
        "all_descriptors_replaced",
        "replace()",
        r"ended|lost|closed|read|answer|died",
        """
def replace():
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in range(256):
        with contextlib.suppress(OSError):
            os.fstat(descriptor)
            os.dup2(null, descriptor)
""",
    ),
    in_right_code(
        "trace_hooks",
        "sys.setprofile(spy)",
        OWN_LOSS,
        before="""
def spy(frame, event, value):
    if event == "return" and frame.f_code.co_name in ("results", "answer", "safe_answer", "encode", "send"):
        for name in list(frame.f_locals):
            if isinstance(frame.f_locals[name], list):
                frame.f_locals[name].clear()

threading.setprofile(spy)
threading.settrace(lambda *_: None)
""",
    ),
    in_right_code(
        "exception_hooks",
        "pass",
        before="""
sys.excepthook = threading.excepthook = sys.unraisablehook = lambda *_: os._exit(0)
threading.Thread(target=lambda: 1 / 1).start()
""",
    ),
    in_right_code(
        "collector_patched",
        "pass",
        OWN_LOSS,
        before="""
gc.disable()
gc.callbacks.append(lambda *_: None)
gc.get_objects = lambda *_: []
gc.collect = lambda *_: (_ for _ in ()).throw(SystemExit(0))
""",
    ),
    in_right_code(
        "signals_ignored",
        "pass",
        before="""
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGALRM, signal.SIGHUP, signal.SIGXCPU):
    signal.signal(number, signal.SIG_IGN)
""",
    ),
    hiding(
        "results_patched",
        """
from assignment.calling import requests

requests.results = lambda returned: ([torch.zeros(4)], True)
""",
    ),
    hiding(
        "every_check_of_requests_patched",
        PATCH_EVERYTHING.format(parts='("requests", "provenance")', replacement="lambda *args, **options: []"),
    ),
    hiding(
        "provenance_patched",
        PATCH_EVERYTHING.format(
            parts='("provenance", "watch", "costs", "origin")', replacement="lambda *args, **options: None"
        ),
    ),
    hiding(
        "protocol_patched",
        """
from assignment.protocol import wire

SEND = wire.send

def send(connection, header, tensors):
    SEND(connection, {**header, "status": "ok", "notes": [], "message": ""}, tensors)

wire.send = send
""",
    ),
    hiding(
        "simulators_call_patched",
        """
from assignment.recorder import tape

for field, empty in (("on_gpu", set()), ("modes", []), ("device", [])):
    setattr(tape.Tape, field, property(lambda self, empty=empty: empty, lambda self, value: None))
""",
    ),
    hiding(
        "recorders_tensors_not_followed",
        """
from assignment.recorder import tape

FOLLOWED, STRIDED = tape.is_followed, tape.strided
tape.is_followed, tape.strided = (lambda tensor: False), (lambda tree: [])
TAPE = next(found for found in gc.get_objects() if type(found).__name__ == "Tape")
torch.zeros(1) + 1
proven(not getattr(TAPE._steps[-1], "made", ()))
""",
    ),
    hiding(
        "dispatch_modes_patched",
        """
import torch.utils._python_dispatch as dispatch

dispatch.TorchDispatchMode.__enter__ = lambda self: self
dispatch.TorchDispatchMode.__exit__ = lambda self, *_: None
COMPUTE = weighted

def weighted(x, weight):
    proven(not torch._C._len_torch_dispatch_stack())
    return COMPUTE(x, weight)
""",
    ),
]
