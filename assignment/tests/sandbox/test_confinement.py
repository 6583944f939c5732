"""What a hostile submission cannot reach in any sandbox that works here: files, the network, other processes."""

import contextlib
import os
import socket
from pathlib import Path

from assignment.system import here
from assignment.tests.sandbox.boxes import ROOT, socket_on_loopback


def test_other_files_cannot_be_read(closed_box, tmp_path):
    (tmp_path / "other.py").write_text("somebody else's submission")
    secret = Path.home() / f".secret-{os.getpid()}"
    secret.write_text("of the user")
    files = {
        "the reference": ROOT / "assignment/reference/cs336_kernels/rmsnorm.py",
        "the oracle": ROOT / "tests/rmsnorm/oracle.py",
        "the grader": ROOT / "assignment/verdict/score.py",
        "another submission": tmp_path / "other.py",
        "the home folder": secret,
        "passwords": "/etc/shadow",
        "the grader's environment": f"/proc/{os.getpid()}/environ",
        "the grader's memory": f"/proc/{os.getpid()}/mem",
        "the kernel's log": "/dev/kmsg",
    }
    attempts = {name: f"open({str(path)!r}, 'rb').read(1)" for name, path in files.items()}
    attempts |= {
        "the supervisor's environment": "open(f'/proc/{os.getppid()}/environ').read()",
        "the supervisor's memory": "open(f'/proc/{os.getppid()}/mem', 'rb')",
        "the supervisor's files": "os.readlink(f'/proc/{os.getppid()}/fd/0')",
        "the first process's environment": "open('/proc/1/environ').read()",
        "the first process's memory": "open('/proc/1/mem', 'rb')",
        "the first process's files": "os.readlink('/proc/1/fd/0')",
    }
    try:
        assert closed_box.that_work(attempts) == set()
    finally:
        secret.unlink()


def test_folders_show_nothing_of_others(closed_box):
    """What can be listed at all is what leads to Python"""
    below_tmp = {Path(file).parts[2] for file in here.readable("record") if file.startswith("/tmp/")}
    strangers = closed_box.run(f"""
        listed = []
        for folder in ({str(ROOT)!r}, {str(Path.home())!r}, "/tmp", "/proc", "/"):
            try:
                listed.append(set(os.listdir(folder)))
            except OSError:
                listed.append(set())
        repository, home, temporary, processes, top = listed
        numbers = {{name for name in processes if name.isdigit()}}
        hidden = {{".bashrc", ".cache", ".config", ".profile"}}
        others = (repository - {{".venv"}}, home & hidden, temporary - {below_tmp | {""}}, top & {{"boot"}})
        return torch.tensor([len(numbers - {{"1", str(os.getpid()), str(os.getppid())}}), *map(len, others)])
    """)
    assert strangers.tolist() == [0] * 5


def test_nothing_can_be_written_outside_of_scratch(closed_box, tmp_path):
    kept = tmp_path / "kept"
    kept.write_text("as it was")
    folders = [tmp_path, ROOT, Path.home(), "/", "/usr", "/etc", "/dev/shm", "/var/tmp"]
    attempts = {f"a file in {folder}": f"tempfile.TemporaryFile(dir='{folder}')" for folder in folders}
    attempts |= {
        "the submission": "open(__file__, 'a')",
        "the worker": "open(sys.modules['assignment.confined'].__file__, 'a')",
        "Python": "open(os.__file__, 'a')",
        "PyTorch": "open(torch.__file__, 'a')",
        "truncate": f"os.truncate({str(kept)!r}, 0)",
        "unlink": f"os.unlink({str(kept)!r})",
        "rename": f"os.rename({str(kept)!r}, 'mine')",
        "link": f"os.link({str(kept)!r}, 'mine')",
        "chmod": f"os.chmod({str(kept)!r}, 0)",
        "chmod of Python": "os.chmod(sys.executable, os.stat(sys.executable).st_mode)",
        "utime": f"os.utime({str(kept)!r}, (0, 0))",
        "its own program": "os.open('/proc/self/exe', os.O_WRONLY)",
        "utime of its own program": "os.utime('/proc/self/exe', (1, 1))",
        "link to its own program": "os.link('/proc/self/exe', 'mine', follow_symlinks=True)",
        "chown": f"os.chown({str(kept)!r}, 1, 1)",
        "xattr": f"os.setxattr({str(kept)!r}, 'user.mark', b'x')",
        "a kernel setting": "open('/proc/sys/kernel/hostname', 'r+')",
        "the kernel's magic keys": "open('/proc/sysrq-trigger', 'w')",
    }
    assert closed_box.that_work(attempts) == set()
    assert closed_box.that_work({"scratch": "open('file', 'w').write('x')", "TMPDIR": "os.mkdir('folder')"})
    assert kept.read_text() == "as it was"
    assert kept.stat().st_mode & 0o777 == 0o644


def test_there_is_no_network(closed_box):
    with socket_on_loopback() as port, abstract_socket() as name:
        attempts = {
            "TCP": f"socket.create_connection(('127.0.0.1', {port}), 5)",
            "TCP over IPv6": "socket.socket(socket.AF_INET6)",
            "UDP": f"socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port}))",
            "listening": "socket.socket().bind(('127.0.0.1', 0))",
            "raw": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
            "netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
            "an abstract Unix socket": f"socket.socket(socket.AF_UNIX).connect('\\0{name}')",
            "datagrams over a pair": "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
        }
        assert closed_box.that_work(attempts) == set()
        assert closed_box.that_work({"a pair of its own": "socket.socketpair()"})


@contextlib.contextmanager
def abstract_socket():
    with socket.socket(socket.AF_UNIX) as server:
        name = f"sandbox-test-{os.getpid()}"
        server.bind(f"\0{name}")
        server.listen()
        yield name


def test_other_processes_cannot_be_touched(closed_box):
    """The grader, the supervisor; signal 0 stands for all, and asks only for the permission"""
    attempts: dict[str, str] = {}
    others = {"the grader": str(os.getpid()), "the supervisor": "os.getppid()", "the first process": "1"}
    for name, pid in others.items():
        attempts |= {
            f"kill {name}": f"os.kill({pid}, 0)",
            f"queue a signal to {name}": f"checked(libc.syscall(129, {pid}, 0, bytes(128)))",
            f"a thread's signal to {name}": f"checked(libc.syscall(234, {pid}, {pid}, 0))",
            f"a signal by descriptor to {name}": f"os.pidfd_open({pid})",
            f"a signal by way of a file to {name}": f"fcntl.fcntl(0, fcntl.F_SETOWN, {pid})",
            f"ptrace {name}": f"checked(libc.ptrace(16, {pid}, 0, 0))",
            f"read the memory of {name}": f"checked(libc.process_vm_readv({pid}, 0, 0, 0, 0, 0))",
            f"the limits of {name}": f"resource.prlimit({pid}, resource.RLIMIT_CPU)",
            f"the priority of {name}": f"os.setpriority(0, {pid}, os.getpriority(0, {pid}))",
            f"the processors of {name}": f"os.sched_setaffinity({pid}, os.sched_getaffinity(0))",
        }
    attempts |= {
        "its whole group": "os.killpg(0, 0)",
        "everyone": "os.kill(-1, 0)",
        "outlive the supervisor": "checked(libc.prctl(1, 0, 0, 0, 0))",
        "name spaces": "checked(libc.unshare(0x10000000))",
        "shared memory that stays": "libc.shmctl(checked(libc.shmget(0, 4096, 0o1600)), 0, 0)",
        "io_uring": "checked(libc.syscall(425, 8, bytes(120)))",
        "bpf": "checked(libc.syscall(321, 0, bytes(72), 72))",
        "userfaultfd": "checked(libc.syscall(323, 1))",
        "fork": "os.fork() or os._exit(0)",
        "a program": "subprocess.run(['true'])",
        "higher limits": "resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))",
    }
    assert closed_box.that_work(attempts) == set()


def test_a_program_that_may_not_be_started_is_not_found(closed_box):
    """Code that asks for nvidia-smi is prepared for that error, not for another"""
    assert closed_box.run("""
        try:
            subprocess.run(["true"], capture_output=True)
        except FileNotFoundError:
            return x.sum()
    """)


def test_no_descriptor_is_inherited(box):
    with (ROOT / "pyproject.toml").open() as file:
        os.set_inheritable(file.fileno(), True)
        ends = box.run("""
            kept = []
            for name in os.listdir("/proc/self/fd"):
                try:
                    kept.append(os.readlink(f"/proc/self/fd/{name}"))
                except FileNotFoundError:
                    pass
            files = [end for end in kept if not end.startswith(("pipe:", "socket:", "/dev/"))]
            return torch.tensor([len([end for end in kept if end.startswith("socket:")]), len(files)]).float()
        """)
    assert ends.tolist() == [1, 0]
