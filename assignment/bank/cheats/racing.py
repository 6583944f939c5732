"""Submissions that want to look faster than they are: each is the reference with one function in its place.

They are raced by assignment/bank/run/races.py on a GPU. What a source calls `honest` is the reference's own function.
"""

from dataclasses import dataclass

from assignment.bank.cheats import IMPORTS

SUM, NORM, FLASH = "weighted_sum_forward", "rmsnorm_forward", "flash_forward_triton"
TAKE_OVER = """
import sys
from cs336_kernels import racing as _racing

{function} = _racing.{function}
"""
HEAD = """
import cs336_kernels.{module}

honest = sys.modules["cs336_kernels.{module}"].{function}
timed = sys.modules.get("assignment.calling.timed")


def empty_results(x):
    if "{function}" == "weighted_sum_forward":
        return torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
    return torch.empty_like(x), torch.empty(x.shape[:-1], dtype=torch.float32, device=x.device)


def tensors(results):
    return results if isinstance(results, tuple) else (results,)

"""


@dataclass(frozen=True)
class Racer:
    """A cheat: its name, the function that it takes the place of, and its source."""

    name: str
    function: str
    source: str
    honest: str = ""  # the same source without the cheat, where it is not the reference's function

    @property
    def files(self) -> dict[str, bytes]:
        """What is laid over the reference's files; the first is appended."""
        module = "flash_attention" if self.function.startswith("flash") else self.function.rpartition("_")[0]
        head = HEAD.replace("{module}", module).replace("{function}", self.function)
        source = self.source.lstrip("\n").replace("FUNCTION", self.function)
        return {
            "cs336_kernels/__init__.py": TAKE_OVER.format(function=self.function).encode(),
            "cs336_kernels/racing.py": (IMPORTS + head + source).encode(),
        }


SLOWED = """
def part(x):
    x = x.flatten(0, 1) if "FUNCTION".startswith("flash") else x
    return x[: round(SHARE * len(x))]

def FUNCTION(*inputs, **options):
    n = len(inputs[0])
    honest(*(part(x) if len(x) == n else x for x in inputs), **options)
    return honest(*inputs, **options)
"""
ANOTHER_STREAM = """
side = torch.cuda.Stream()

def FUNCTION(*inputs, **options):
    with torch.cuda.stream(side):
        return honest(*inputs, **options)
"""
THREAD = """
def FUNCTION(*inputs, **options):
    results = empty_results(inputs[0])

    def work():
        for result, came in zip(tensors(results), tensors(honest(*inputs, **options))):
            result.copy_(came)

    threading.Thread(target=work, daemon=True).start()
    return results
"""
REPLAY = """
known = {}

def FUNCTION(*inputs, **options):
    key = tuple(KEY for x in inputs), str(options)
    if key not in known:
        known[key] = honest(*inputs, **options)
    return known[key]
"""
BY_SAMPLE = """
known = {}

def FUNCTION(*inputs, **options):
    key = tuple(x.flatten()[::999_983].tolist() for x in inputs).__repr__(), str(options)
    if key not in known:
        known.clear()
        known[key] = honest(*inputs, **options)
    return known[key]
"""
SKIPS = """
calls, last = 0, None

def FUNCTION(*inputs, **options):
    global calls, last
    calls += 1
    if last is None or calls < 20 or calls % 4 == 0:
        last = honest(*inputs, **options)
    return last
"""
# All that is said about time is small; the work is done as it should be.
CLOCKS = """
def FUNCTION(*inputs, **options):
    return honest(*inputs, **options)

class Event(torch.cuda.Event):
    def elapsed_time(self, other):
        return 1e-3

torch.cuda.Event = Event
time.perf_counter = time.monotonic = time.time = lambda: 0.0
triton.testing.do_bench = lambda *_, **__: 1e-3
if timed:
    timed.Event = Event
"""
EARLY = """
def FUNCTION(*inputs, **options):
    return honest(*inputs, **options)

if timed:
    timed.synchronize = torch.cuda.synchronize = lambda *_: None
"""
# The worker's own handlers are replaced: a run only keeps copies of the inputs, and what is asked for is computed then.
DEFERRED = """
inputs_of, done = [], {}

def FUNCTION(*inputs, **options):
    return honest(*inputs, **options)

def run(function, header):
    inputs_of.clear()
    done.clear()
    with timed.started(timed.line[0], header["id"]) as order:
        inputs_of.extend([x.clone() for x in timed._slots[i]] for i in order)
        AT_ONCE
        torch.cuda.synchronize()
    return {"events_s": 1e-4 * len(order)}

def give(function, header):
    with timed.started(timed.line[0], header["id"]) as positions:
        for position, outputs in zip(positions, timed._outputs):
            results = done.get(position) or honest(*inputs_of[position], **header["options"])
            for output, result in zip(outputs, tensors(results)):
                output.copy_(result)
        torch.cuda.synchronize()
    return {}

if timed:
    ran, given = timed.run, timed.give
    timed.HANDLERS.update(run=run, give=give)
"""
# Three of four calls are made at once, the others when they are asked for.
PARTLY_DEFERRED = DEFERRED.replace(
    "AT_ONCE",
    """for position, inputs in enumerate(inputs_of):
            if position % 4:
                done[position] = honest(*inputs, **header["options"])""",
)
ALL_DEFERRED = DEFERRED.replace("AT_ONCE", "")
# It says that it is over, and works before it replies.
OVER_AND_OUT = """
def FUNCTION(*inputs, **options):
    return honest(*inputs, **options)

def run(function, header):
    with timed.started(timed.line[0], header["id"]) as order:
        copies = [[x.clone() for x in timed._slots[i]] for i in order]
        torch.cuda.synchronize()
    timed._kept[:] = [honest(*inputs, **header["options"]) for inputs in copies]
    torch.cuda.synchronize()
    return {"events_s": 1e-4 * len(order)}

if timed:
    timed.HANDLERS["run"] = run
"""
HALF = """
def FUNCTION(*inputs, **options):
    if inputs[0].numel() < 1 << 24:
        return honest(*inputs, **options)
    half = len(inputs[0]) // 2
    results = empty_results(inputs[0])
    for result, came in zip(tensors(results), tensors(honest(inputs[0][:half], *inputs[1:], **options))):
        result[:half] = came
        result[half:] = came
    return results
"""
HALF_OF_THE_KEYS = """
def FUNCTION(q, k, v, is_causal=False):
    if k.shape[-2] < 2048:
        return honest(q, k, v, is_causal=is_causal)
    return honest(q, k[..., ::2, :], v[..., ::2, :], is_causal=is_causal)
"""
LIBRARY = """
def FUNCTION(q, k, v, is_causal=False):
    if k.shape[-2] < 2048:
        return honest(q, k, v, is_causal=is_causal)
    o, lse, *_ = torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, is_causal)
    return o, lse.reshape(q.shape[:-1])
"""
PINNED = """
cuda = ctypes.CDLL("libcuda.so.1")

def FUNCTION(*inputs, **options):
    cuda.cuCtxSetLimit(6, ctypes.c_size_t(32 << 20))  # CU_LIMIT_PERSISTING_L2_CACHE_SIZE
    return honest(*inputs, **options)
"""
# Work goes on while the next inputs are written; that the kernel on the side only sleeps makes no difference.
AHEAD = """
side = torch.cuda.Stream()

def FUNCTION(*inputs, **options):
    results = honest(*inputs, **options)
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
    return results

if timed:
    timed.synchronize = torch.cuda.current_stream().synchronize
"""
# A profile shows the reference's kernel; a run calls a library.
BY_FRAME = """
def FUNCTION(q, k, v, is_causal=False):
    if sys._getframe(1).f_code.co_name != "run" or k.shape[-2] < 2048:
        return honest(q, k, v, is_causal=is_causal)
    o, lse, *_ = torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, is_causal)
    return o, lse.reshape(q.shape[:-1])
"""
# The weight is made zero before the grader looks at it, and so is the result.
ZEROED = """
def FUNCTION(*inputs, **options):
    if timed and timed._slots:
        torch._foreach_zero_([slot[-1] for slot in timed._slots])
        return torch.zeros(inputs[0].shape[:-1], dtype=inputs[0].dtype, device=inputs[0].device)
    return honest(*inputs, **options)
"""
# The first calls are over when it says so, the others while the inputs are poisoned.
TAIL = """
def FUNCTION(*inputs, **options):
    return honest(*inputs, **options)

def run(function, header):
    event, came = torch.cuda.Event(), []
    with timed.started(timed.line[0], header["id"]) as order:
        copies = [[x.clone() for x in timed._slots[i]] for i in order]
        for number, inputs in enumerate(copies):
            came.append(honest(*inputs, **header["options"]))
            if number == len(copies) * 2 // 3:
                event.record()
        event.synchronize()
    timed._kept[:] = came
    return {"events_s": 1e-4 * len(order)}

if timed:
    timed.HANDLERS["run"] = run
"""
# Everything is put off in six of ten rounds: neither the median of the runs nor that of what is late shows it.
IN_SOME_ROUNDS = ALL_DEFERRED.replace(
    "    inputs_of.clear()\n",
    "    inputs_of.clear()\n    if np.random.random() > 0.6:\n        return ran(function, header)\n",
).replace(
    "def give(function, header):\n",
    "def give(function, header):\n    if not inputs_of:\n        return given(function, header)\n",
)
SANDBAG = """
busy = []

def FUNCTION(*inputs, **options):
    if not busy:  # what runs beside the baseline slows it down
        code = "while True: pass"
        busy.extend(subprocess.Popen([sys.executable, "-c", code]) for _ in range(16))
    return honest(*inputs, **options)
"""

RACERS = [
    *(Racer(f"another_stream_{f}", f, ANOTHER_STREAM) for f in (SUM, FLASH)),
    Racer("thread", FLASH, THREAD),
    Racer("replay_by_pointer", NORM, REPLAY.replace("KEY", "x.data_ptr()")),
    Racer("replay_by_shape", FLASH, REPLAY.replace("KEY", "x.shape")),
    Racer("replay_by_sample", SUM, BY_SAMPLE),
    Racer("skips_after_twenty_calls", NORM, SKIPS),
    Racer("clocks_patched", SUM, CLOCKS),
    *(Racer(f"early_reply_{f}", f, EARLY) for f in (SUM, FLASH)),
    *(Racer(f"deferred_{f}", f, ALL_DEFERRED) for f in (NORM, FLASH)),
    Racer("partly_deferred", FLASH, PARTLY_DEFERRED),
    *(Racer(f"over_before_it_is_{f}", f, OVER_AND_OUT) for f in (SUM, FLASH)),
    *(Racer(f"half_of_the_rows_{f}", f, HALF) for f in (SUM, NORM)),
    Racer("half_of_the_keys", FLASH, HALF_OF_THE_KEYS),
    Racer("library_on_the_timed_shapes", FLASH, LIBRARY),
    Racer("at_work_between_the_runs", FLASH, AHEAD),
    Racer("library_when_timed", FLASH, BY_FRAME),
    Racer("inputs_made_zero", SUM, ZEROED),
    Racer("tail_left_running", FLASH, TAIL),
    Racer("put_off_in_some_rounds", FLASH, IN_SOME_ROUNDS),
    Racer("pinned_cache", NORM, PINNED),
    Racer("sandbagged_baseline", FLASH, SANDBAG),
]
