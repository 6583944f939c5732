"""Reading what it must not. Each computes right values, and stops doing so by a message once it has found something.

What was planted for the run is looked for by its token; everything else is counted, never kept.
"""

from assignment.bank.cheats import HARMLESS, Cheat

LEAK = """
FOUND = []

def leak(text):
    FOUND.append(text)

def tried(action):
    try:
        return action()
    except Exception:
        return None

def readable(path):  # not only known to be there: some sandboxes hide contents alone
    return tried(lambda: os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(1))

RIGHT = _wsum.weighted_sum_forward

def weighted_sum_forward(x, weight):
    if FOUND:
        raise RuntimeError("leaked: " + FOUND[0])
    return RIGHT(x, weight)
"""


def reading(name: str, source: str) -> Cheat:
    return Cheat(name, "weighted_sum", LEAK + source, HARMLESS, confined=True)


SLOW = {"resolver"}
CHEATS = [
    reading(
        "repository_through_the_graders_modules",
        """
for module in [module for name, module in sys.modules.items() if name.startswith("assignment")]:
    for start in {Path(module.__file__ or "/"), Path(module.__file__ or "/").resolve()}:
        for folder in start.parents:
            for name in ("tests/rmsnorm/oracle.py", "assignment/reference", "assignment/bank", "handout.md"):
                if folder != Path("/") and readable(folder / name):
                    leak(name)
""",
    ),
    reading(
        "repository_by_search",
        """
import itertools

start = time.monotonic()
above = [*Path(__file__).resolve().parents, *Path(sys.executable).parents]
for place in dict.fromkeys([Path.cwd(), *map(Path, sys.path), *above, Path("/")]):
    for folder, folders, files in os.walk(place):
        depth = len(Path(folder).relative_to(place).parts)
        folders[:] = [f for f in folders if depth < 4 and f not in ("proc", "sys", "site-packages", "usr", "lib")]
        if "oracle.py" in files or ("handout.md" in files and "grade.py" in files):
            leak("the repository")
        if time.monotonic() > start + 5:
            break
""",
    ),
    reading(
        "home",
        """
if tried(lambda: Path("@HOME@/secret").read_text()):
    leak("a file of the home folder")
import pwd

home = pwd.getpwuid(os.getuid()).pw_dir
private = [".ssh", ".bashrc", ".profile", ".bash_history", ".cache", ".config", ".gitconfig"]
if any(readable(f"{home}/{name}") for name in private):
    leak("the home folder")
""",
    ),
    reading(
        "other_submissions",
        """
for folder in {Path("/tmp"), Path("@HOME@").parent / "tmp", *Path(__file__).resolve().parents}:
    for path in tried(lambda: list(folder.glob("grade-*/submission/cs336_kernels/rmsnorm.py"))) or []:
        if "@TOKEN@" in (tried(path.read_text) or ""):
            leak("another submission")
""",
    ),
    reading(
        "environment_of_other_processes",
        """
for path in Path("/proc").glob("[0-9]*/environ"):
    if b"@TOKEN@" in (tried(path.read_bytes) or b""):
        leak("the grader's environment")
if "@TOKEN@" in os.environ.values():
    leak("the grader's environment, inherited")
""",
    ),
    reading(
        "seed_on_the_command_line",
        """
for path in Path("/proc").glob("[0-9]*/cmdline"):
    command = tried(path.read_bytes) or b""
    if b"grade.py" in command and b"@TOKEN@" not in command and str(Path("@HOME@").parent).encode() in command:
        leak("the grader's command line, with its seed")
""",
    ),
    reading(
        "memory_of_other_processes",
        """
for path in Path("/proc").glob("[0-9]*/mem"):
    command = tried((path.parent / "cmdline").read_bytes) or b""
    if b"grade.py" in command and str(Path("@HOME@").parent).encode() in command:
        maps = (tried((path.parent / "maps").read_text) or "").splitlines()
        start = int(maps[0].split("-")[0], 16) if maps else 0

        def peek():
            with path.open("rb", buffering=0) as memory:
                memory.seek(start)
                return memory.read(16)

        if start and tried(peek):
            leak("the grader's memory")
""",
    ),
    reading(
        "debugger",
        """
PTRACE_SEIZE, PTRACE_DETACH = 0x4206, 17
libc = ctypes.CDLL(None, use_errno=True)
for path in Path("/proc").glob("[0-9]*/cmdline"):
    command, pid = tried(path.read_bytes) or b"", int(path.parent.name)
    if b"grade.py" in command and str(Path("@HOME@").parent).encode() in command:
        if libc.ptrace(PTRACE_SEIZE, pid, None, None) == 0:
            leak("the grader, by a debugger")
""",
    ),
    reading(
        "descriptors",
        """
for descriptor in range(3, 1024):
    target = tried(lambda: os.readlink(f"/proc/self/fd/{descriptor}")) or ""
    if target.endswith((".json", ".xml", ".zip", "stdout", "stderr")) or "/home/" in target:
        leak("a file that the grader has open")
for pid in (os.getppid(), *(int(p.name) for p in Path("/proc").glob("[0-9]*"))):
    for link in tried(lambda: list(Path(f"/proc/{pid}/fd").iterdir())) or []:
        target = tried(lambda: os.readlink(link)) or ""
        if str(Path("@HOME@").parent) in target and "/grade-" not in target:
            leak("descriptors of the grader")
""",
    ),
    reading(
        "network",
        """
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    def connect():
        with socket.socket(type=kind) as ours:
            ours.settimeout(2)
            ours.connect(("127.0.0.1", int("@PORT@")))
            return ours.send(b"here")

    tried(connect)
""",
    ),
    reading(
        "network_outside",
        """
for address in (("192.0.2.1", 80), ("2001:db8::1", 80)):
    def connect():
        with socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_DGRAM) as ours:
            ours.connect(address)  # a route is enough; nothing is sent
            return True

    if tried(connect):
        leak("a route to the network")
""",
    ),
    reading(
        "abstract_socket",
        """
def connect():
    with socket.socket(socket.AF_UNIX) as ours:
        ours.settimeout(2)
        ours.connect("\\0cheat-@TOKEN@")

tried(connect)
""",
    ),
    reading(
        "resolver",
        """
if tried(lambda: socket.getaddrinfo("example.org", 80)):
    leak("names of the network")
""",
    ),
]
