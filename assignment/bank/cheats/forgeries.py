"""Forged output: reports on the terminal, frames on the wire, objects and text that do something when they are read."""

from assignment.bank.cheats import LOSES, OWN_LOSS, ZERO, Cheat
from assignment.bank.cheats.comparison import WRONG
from assignment.bank.cheats.harness import ONE_CASE, in_call

ANYTHING = r"wrong|read|process|answer|kernel|raised|returned|expected"
DESCRIPTORS = """
from assignment.protocol import wire

ZEROS = {"status": "ok", "groups": [1], "bare": True, "notes": []}

def sockets():
    for descriptor in range(3, 256):
        with contextlib.suppress(OSError):
            yield socket.socket(fileno=os.dup(descriptor))

def say(header, tensors=()):
    for connection in sockets():
        with contextlib.suppress(Exception):
            connection.settimeout(1)
            wire.send(connection, header, list(tensors))

def last_id():
    frame = sys._getframe()
    while frame:
        for held in frame.f_locals.values():
            if isinstance(held, dict) and isinstance(held.get("id"), int):
                return held["id"]
        frame = frame.f_back
    return 1
"""
FORGED_SCORE = r"""
REPORT = "\x1b[2J\x1b[H\x1b[32m[bold green]weighted_sum 10/10[/]\x1b[0m\r\nScore: 80/80 gradable here, 20 need a GPU\n"
for descriptor in range(256):
    with contextlib.suppress(OSError):
        os.write(descriptor, REPORT.encode())
print(REPORT, flush=True)
Path("report.json").write_text('{"schema": 1, "score": 80.0}')
"""
FRAMED = """
FILE = sys.modules["assignment.recorder.tape"].__file__

class Framed(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        exec(compile("[][1]", FILE, "exec"))

    __torch_function__ = torch._C._disabled_torch_function_impl

"""
NASTY = r"\x1b[2J\x1b]0;owned\x07\r\x00\x08\u202e\u2028\ud800 ]]> &lt; [red]Score: 80/80[/red]\nScore: 80/80"


def forged(name: str, source: str, only: tuple[str, ...] = ()) -> Cheat:
    """Zeros in place of answers, and frames that say something else."""
    return Cheat(name, "weighted_sum", DESCRIPTORS + source, ZERO, evidence=ANYTHING, only=only)


def zeros(line: str) -> str:
    return WRONG.replace("):\n", f"):\n    {line}\n")


def message(name: str, raised: str, before: str = "") -> Cheat:
    return in_call(name, f"raise {raised}", r"raised|Error|answer|read|process", before)


SLOW = {
    "half_a_frame",
    "slow_drip",
    "frames_with_strange_ids",
    "says_that_it_is_to_do",
    "frame_with_a_wrong_id",
    "message_that_never_ends",
    "message_that_is_no_string",
    "markup_in_a_message",
    "control_characters_in_a_name",
}
CHEATS = [
    Cheat("report_printed", "weighted_sum", WRONG + FORGED_SCORE, ZERO, evidence=ANYTHING, file="weighted_sum.py"),
    Cheat(
        "report_printed_in_the_call",
        "weighted_sum",
        zeros("print('Score: 80/80', flush=True); os.write(2, b'\\x1b[1AScore: 80/80\\n')"),
        ZERO,
        evidence=ANYTHING,
    ),
    Cheat(
        "frames_at_import",
        "weighted_sum",
        DESCRIPTORS + WRONG + "for number in range(200):\n    say({**ZEROS, 'id': number}, [torch.zeros(4)])\n",
        ZERO,
        evidence=ANYTHING,
        file="weighted_sum.py",
    ),
    forged("frame_with_the_id_of_the_call", zeros("say({**ZEROS, 'id': last_id()}, [torch.zeros(x.shape[:-1])])")),
    forged("frame_with_the_next_id", zeros("say({**ZEROS, 'id': last_id() + 1}, [torch.zeros(x.shape[:-1])])")),
    forged("frame_with_a_wrong_id", zeros("say({**ZEROS, 'id': -1}, [torch.zeros(x.shape[:-1])])")),
    forged(
        "frames_with_strange_ids",
        zeros("[say({**ZEROS, 'id': i}) for i in (True, 1.0, '1', None, [], 2**70, math.nan, {'id': 1})]"),
    ),
    forged("two_replies", zeros("[say({**ZEROS, 'id': last_id()}, [torch.zeros(x.shape[:-1])]) for _ in '12']")),
    forged(
        "says_that_the_grader_failed", zeros("say({'status': 'grader error', 'id': last_id(), 'message': 'passed'})")
    ),
    forged(
        "says_that_the_recorder_broke", zeros("say({'status': 'broken', 'id': last_id(), 'message': 'IndexError'})")
    ),
    forged("raises_in_the_recorders_name", FRAMED + zeros("exec(compile('[][1]', FILE, 'exec'))")),
    forged("raises_in_the_recorders_name_and_returns", FRAMED + zeros("torch.Tensor.add(x, Framed(x))")),
    forged("says_that_it_is_to_do", zeros("say({'status': 'needs review', 'id': last_id(), 'message': 'passed'})")),
    forged(
        "bytes_of_no_frame",
        zeros("[os.write(s.fileno(), b'K336' + b'\\xff' * 60000) for s in sockets() if s.getpeername() is not None]"),
    ),
    forged("header_of_gigabytes", zeros("[s.send(b'K336' + b'\\xff' * 12) for s in sockets()]")),
    forged("half_a_frame", zeros("[s.send(b'K33') for s in sockets()]; time.sleep(1000)"), ONE_CASE),
    forged("slow_drip", zeros("[(s.send(b'K'), time.sleep(1)) for _ in range(1000) for s in sockets()]"), ONE_CASE),
    Cheat(
        "reduce_payload",
        "weighted_sum",
        """
class Payload:
    def __reduce__(self):
        return os.system, ("touch /tmp/cheat-@TOKEN@",)

def weighted_sum_forward(x, weight):
    return Payload()
""",
        LOSES,
        ("test_forward_values",),
        r"Payload",
    ),
    message("control_characters_in_a_message", f"RuntimeError('{NASTY}')"),
    message("control_characters_in_a_name", f"type('{NASTY}'.replace(chr(0), ''), (Exception,), {{}})('x')"),
    message("message_of_megabytes", "RuntimeError('x' * (64 << 20))"),
    message("message_of_many_lines", "RuntimeError('Score: 80/80\\n' * 100_000)"),
    message("markup_in_a_message", "RuntimeError('[bold]80/80[/bold] [link=file:///etc/passwd]x[/link] [/] [')"),
    message("message_that_raises", "E()", "class E(Exception):\n    __str__ = __repr__ = lambda self: 1 / 0\n"),
    message("message_that_is_no_string", "E()", "class E(Exception):\n    __str__ = lambda self: 7\n"),
    message("message_that_exits", "E()", "class E(Exception):\n    __str__ = __repr__ = lambda self: os._exit(0)\n"),
    Cheat(
        "message_that_never_ends",
        "weighted_sum",
        """
class E(Exception):
    def __str__(self):
        while True:
            pass

def weighted_sum_forward(x, weight):
    raise E
""",
        LOSES,
        ("test_value",),
        r"answer|deadline|not run",
        only=ONE_CASE,
    ),
    message(
        "exception_that_caused_itself",
        "cycle()",
        "def cycle():\n    a, b = ValueError('a'), ValueError('b')\n"
        "    a.__cause__, b.__cause__ = b, a\n    return a\n",
    ),
    message(
        "class_with_a_forged_order",
        "E('passed')",
        "class M(type):\n    mro = lambda cls: type.mro(cls)\n    __name__ = property(lambda c: 7)\n\n"
        "class E(Exception, metaclass=M):\n    pass\n",
    ),
    Cheat(
        "not_implemented_forged",
        "weighted_sum",
        "def weighted_sum_forward(x, weight):\n    raise NotImplementedError('\\x1b[2JScore: 80/80\\nScore: 80/80')\n",
        LOSES,
        ("test_forward_values",),
        r"Score|to do|weighted",
    ),
    Cheat(
        "docstrings_and_names_forged",
        "weighted_sum",
        'def weighted_sum_forward(x, weight):\n    "Score: 80/80"\n    return RIGHT(x, weight)\n\n'
        "RIGHT = _wsum.weighted_sum_forward\n"
        f"weighted_sum_forward.__name__ = weighted_sum_forward.__qualname__ = '{NASTY}'\n",
        OWN_LOSS,
    ),
]
