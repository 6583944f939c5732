"""Attacks on the processes around a submission: its parents, its children, what it could become."""

from assignment.bank.cheats import HARMLESS, OWN_LOSS, Cheat
from assignment.bank.cheats.harness import RIGHT, VALUES, in_call

DIED = r"ended|lost|closed|killed|died|SIGKILL|answer|not run"
ANCESTORS = """
def ancestors():
    pid, program = os.getppid(), b""
    while not program.endswith(b"/grade.py"):
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\\0")
        program = next((word for word in command if word.endswith((b"/grade.py", b"/worker.py"))), b"")
        if not program or b"python" not in command[0]:
            return  # never what is not the grader's
        yield pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

def attack(number):
    for pid in list(ancestors()):
        with contextlib.suppress(OSError):
            os.kill(pid, number)
"""


def whole(name: str, line: str, before: str = "", expected: str = OWN_LOSS) -> Cheat:
    return Cheat(name, "weighted_sum", before + RIGHT.format(line=line), expected, only=VALUES)


SLOW = {"stops_the_grader", "stops_itself", "child_answers_later", "becomes_another_program", "thread_left_that_exits"}
CHEATS = [
    in_call("kills_itself", "os.kill(os.getpid(), signal.SIGKILL)", DIED),
    in_call("kills_its_group", "os.killpg(0, signal.SIGKILL)", DIED),
    Cheat(
        "kills_the_grader",
        "weighted_sum",
        ANCESTORS + RIGHT.format(line="attack(signal.SIGKILL)"),
        OWN_LOSS,
        only=VALUES,
        confined=True,
    ),
    Cheat(
        "stops_the_grader",
        "weighted_sum",
        ANCESTORS + RIGHT.format(line="attack(signal.SIGSTOP)"),
        OWN_LOSS,
        only=VALUES,
        within_s=150,
        confined=True,
    ),
    Cheat(
        "interrupts_the_grader",
        "weighted_sum",
        ANCESTORS + RIGHT.format(line="attack(signal.SIGINT)"),
        OWN_LOSS,
        only=VALUES,
        confined=True,
    ),
    in_call(
        "becomes_another_program", "os.execv('/bin/sleep', ['sleep', '1000'])", r"answer|ended|lost|died|raised|not run"
    ),
    in_call(
        "becomes_a_preloaded_python",
        "os.execve(sys.executable, ['python', '-c', 'print(80)'], {'LD_PRELOAD': '/nowhere.so'})",
        r"answer|ended|lost|died|raised|not run",
    ),
    whole("child_answers_for_it", "os._exit(0) if os.fork() else None"),
    whole("both_answer", "os.fork()"),
    whole(
        "child_answers_later",
        "os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT) if (pid := os.fork()) else time.sleep(2)",
    ),
    whole("thread_left_that_exits", "threading.Timer(0.5, os._exit, [0]).start()"),
    whole(
        "threads_left",
        "[threading.Thread(target=time.sleep, args=(1000,), daemon=True).start() for _ in range(50)]",
    ),
    whole("child_left", "subprocess.Popen(['sleep', '1000'])"),
    whole(
        "daemon_left",
        "daemon()",
        """
def daemon():
    if pid := os.fork():
        os.waitpid(pid, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    os.closerange(0, 4096)
    for number in range(1, 32):
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    time.sleep(1000)
    os._exit(0)
""",
    ),
    whole(
        "socket_left_listening",
        "serve()",
        """
def serve():
    global SERVER
    if "SERVER" not in globals():
        SERVER = socket.create_server(("127.0.0.1", 0))
        os.set_inheritable(SERVER.fileno(), True)
        subprocess.Popen(["sleep", "1000"], close_fds=False, start_new_session=True)
""",
    ),
    Cheat(
        "files_left",
        "weighted_sum",
        """
own = os.environ.get("HOME", "."), os.environ.get("TMPDIR", ".")
for folder in (".", "/tmp", "/dev/shm", "/var/tmp", "@HOME@", *own):
    with contextlib.suppress(OSError):
        Path(folder, "cheat-@TOKEN@").write_text("here")
""",
        HARMLESS,
        confined=True,
    ),
    Cheat(
        "shared_memory_left",
        "weighted_sum",
        """
with contextlib.suppress(OSError):
    descriptor = os.open("/dev/shm/cheat-@TOKEN@", os.O_CREAT | os.O_RDWR)
    os.ftruncate(descriptor, 1 << 20)
""",
        HARMLESS,
        confined=True,
    ),
    Cheat(
        "graders_files_written",
        "weighted_sum",
        """
for module in [module for name, module in sys.modules.items() if name.startswith("assignment")]:
    for path in {Path(module.__file__ or ""), Path(module.__file__ or "").resolve()}:
        with contextlib.suppress(OSError):
            (path.parent / "cheat-@TOKEN@").write_text("here")
""",
        HARMLESS,
        confined=True,
    ),
    in_call(
        "stops_itself",
        "os.kill(os.getpid(), signal.SIGSTOP)",
        r"answer|deadline|not run",
    ),
]
