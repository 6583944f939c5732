"""Denial: loops, bombs, floods. Each is bounded, so that a machine on which nothing holds it survives.

The large memory bombs only map what they take: to touch it would stop a machine that lets them.
"""

from assignment.bank.cheats import LOSES, OWN_LOSS, ZERO, Cheat
from assignment.bank.cheats.harness import ONE_CASE, RIGHT

STOPPED = r"answer|deadline|stopped|not run|time"


def endless(name: str, line: str, before: str = "", evidence: str = STOPPED) -> Cheat:
    """Never returns from the forward function."""
    source = before + RIGHT.format(line=line)
    return Cheat(name, "weighted_sum", source, LOSES, ("test_value",), evidence, only=ONE_CASE, within_s=240)


def bomb(name: str, line: str, before: str = "", hurts_all: bool = False) -> Cheat:
    """Takes all that it gets, and then answers: what comes of it is the author's loss, and nobody else's."""
    source = before + RIGHT.format(line=line)
    return Cheat(name, "weighted_sum", source, OWN_LOSS, only=ONE_CASE, within_s=240, hurts_all=hurts_all)


SLOW = {
    "sleep",
    "loop_that_holds_the_interpreter",
    "loop_in_c",
    "deadlock",
    "waits_for_input",
    "grid_without_end",
    "loop_at_import",
    "loop_at_exit_of_the_call",
    "a_million_files",
    "tensor_of_terabytes",
}
CHEATS = [
    endless(
        "loop_in_a_call",
        "spin()",
        "def spin():\n    while True:\n        pass\n",
        r"(?s)answer.*cheat\.py:\d+ in spin|not run",
    ),
    endless("sleep", "time.sleep(10**6)"),
    endless("loop_that_holds_the_interpreter", "import re; re.match('(a+)+$', 'a' * 60 + 'b')"),
    endless("loop_in_c", "ctypes.CDLL(None).pause()"),
    endless(
        "loop_with_signals_ignored",
        "spin()",
        """
import faulthandler

def spin():
    faulthandler.disable()
    faulthandler.cancel_dump_traceback_later()
    for number in range(1, 32):
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
    while True:
        pass
""",
    ),
    endless("deadlock", "LOCK.acquire()", "LOCK = threading.Lock()\nLOCK.acquire()\n"),
    endless("waits_for_input", "sys.stdin.read() or os.read(os.pipe()[0], 1)"),
    endless(
        "loop_in_a_kernel",
        "_spin[(1,)](x)",
        """
@triton.jit
def _spin(x_ptr):
    i = 0
    while i >= 0:
        i = i * 0
""",
    ),
    endless(
        "grid_without_end",
        "_nothing[(2**31 - 1, 65535, 65535)](x)",
        "@triton.jit\ndef _nothing(x_ptr):\n    pass\n",
        r"answer|deadline|not run|memory|Memory|grid|killed|kernel",
    ),
    Cheat(
        "loop_at_import",
        "rmsnorm",
        "while True:\n    pass\n",
        ZERO,
        evidence=STOPPED,
        file="rmsnorm.py",
        only=("test_rmsnorm.py::test_value",),
        within_s=400,
    ),
    Cheat(
        "loop_at_exit_of_the_call",
        "weighted_sum",
        """
class Hangs:
    def __del__(self):
        time.sleep(10**6)

def weighted_sum_forward(x, weight):
    return Hangs()
""",
        LOSES,
        ("test_value",),
        STOPPED + r"|Hangs",
        only=ONE_CASE,
        within_s=240,
    ),
    bomb(
        "fork_bomb",
        "fork()",
        """
def fork():
    for _ in range(200):
        try:
            if not os.fork():
                time.sleep(300)
                os._exit(0)
        except OSError:
            break
""",
    ),
    bomb(
        "thread_bomb",
        "fork()",
        """
def fork():
    with contextlib.suppress(RuntimeError, MemoryError):
        for _ in range(2000):
            threading.Thread(target=time.sleep, args=(300,), daemon=True).start()
""",
    ),
    bomb("memory_bomb", "held = [np.empty(1 << 30, np.uint8) for _ in range(64)]"),
    bomb(
        "memory_bomb_with_its_limits_raised",
        "raise_limits(); held = [np.empty(1 << 30, np.uint8) for _ in range(64)]",
        """
def raise_limits():
    for limit in (resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(limit, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
""",
    ),
    bomb("memory_touched", "held = np.ones(3 << 26); held = [held, held * 2]"),  # 3 GiB
    bomb("tensor_of_terabytes", "torch.empty(1 << 42)"),
    bomb("recursion_without_end", "sys.setrecursionlimit(2**31 - 1); deep()", "def deep():\n    return deep() + 1\n"),
    bomb(
        "gigabytes_of_output",
        "flood()",
        """
def flood():
    line = b"Score: 80/80\\n" * 80_000
    for _ in range(1_000):
        os.write(1, line)
        os.write(2, line)
""",
    ),
    bomb(
        "full_disk",
        "fill()",
        """
def fill():
    for i in range(8):
        with contextlib.suppress(OSError):
            for folder in (".", os.environ.get("TMPDIR", ".")):
                with open(f"{folder}/cheat-@TOKEN@-{i}", "wb") as file:
                    for _ in range(16):
                        file.write(bytes(8 << 20))
""",
    ),
    bomb(
        "a_million_files",
        "fill()",
        """
def fill():
    with contextlib.suppress(OSError):
        for i in range(20_000):
            open(f"cheat-@TOKEN@-{i}", "wb").close()
""",
    ),
    bomb("all_descriptors_opened", "HELD.extend(os.dup(0) for _ in range(100_000))", "HELD = []\n", hurts_all=True),
]
