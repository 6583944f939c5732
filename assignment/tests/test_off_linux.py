"""What stands in for Linux elsewhere, tried on Linux: lines with messages, processes, children that are not forked."""

import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

from assignment.system import linux, posix
from assignment.tests.off_linux import compared, interpreter
from assignment.tests.test_seams import OURS

SYSTEMS = pytest.mark.parametrize("system", [linux, posix])
# what only Linux has; and who may name it: staff's measurements, made on Linux, and texts of hostile submissions
OF_LINUX = (
    r"/proc\b|prctl|pidfd|setns|memfd_|sched_\w+affinity|F_SETPIPE|O_PATH|LIMIT_(AS|MSGQUEUE)|SEQPACKET|sys\.platform"
)
MAY_NAME_IT = ("system/", "tests/", "bank/cheats/", "bank/run/")
BUSY = """
import time
while time.process_time() < {0}:
    pass
print(flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """A Python without what is Linux's."""
    return interpreter.make(tmp_path_factory.mktemp("elsewhere") / "python")


@pytest.fixture
def started():
    """Start a program; all are ended."""
    processes = []

    def start(code):
        processes.append(subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_one_room_names_what_is_linuxs():
    for path in sorted(OURS.rglob("*.py")):
        name = path.relative_to(OURS).as_posix()
        if not name.startswith(MAY_NAME_IT):
            found = re.search(OF_LINUX, path.read_text())
            assert not found, f"{name}: {found[0]}"


@SYSTEMS
def test_messages_arrive_whole_and_with_their_descriptors(system):
    ours, theirs = system.socketpair()
    read, write = os.pipe()
    with ours, theirs:
        system.send(ours, b"a" * 1000, [write])
        system.send(ours, b"b")
        message, (descriptor,) = system.receive(theirs, 2000, 1)
        assert message == b"a" * 1000
        assert system.receive(theirs, 2000) == (b"b", [])
        os.write(descriptor, b"!")
        assert os.read(read, 9) == b"!"
        ours.close()
        assert system.receive(theirs, 2000) == (b"", [])
    for each in (read, write, descriptor):
        os.close(each)


def test_a_stream_that_ends_in_a_message_is_closed():
    ours, theirs = posix.socketpair()
    with theirs:
        with ours:
            ours.sendall(b"\x09\0\0\0half")
        with pytest.raises(ConnectionError):
            posix.receive(theirs, 99)


@SYSTEMS
def test_who_computes_is_busy_and_who_sleeps_is_idle(system, started):
    process = started(BUSY.format(1.5))
    looks: list[tuple[float, bool]] = []
    while not looks or looks[-1][0] < 1.2:
        looks.append(system.usage_of(process.pid))
        time.sleep(0.2)
    assert sum(is_idle for _, is_idle in looks[2:]) <= len(looks) // 2  # a loaded machine may leave it out for a while
    process.stdout.readline()
    system.usage_of(process.pid)
    time.sleep(0.3)
    seconds, is_idle = system.usage_of(process.pid)
    assert seconds == pytest.approx(1.5, abs=0.3)
    assert is_idle


@SYSTEMS
def test_children_are_found_until_they_end(system, started):
    process = started("import subprocess; subprocess.Popen(['sleep', '60']); print(flush=True); input()")
    process.stdout.readline()
    (child,) = system.children_of(process.pid)
    until = time.monotonic() + 10
    while system.name_of(child) != "sleep" and time.monotonic() < until:  # it may not have become that yet
        time.sleep(0.05)
    assert system.name_of(child) == "sleep"
    assert not system.has_ended(child, 0)
    os.kill(child, signal.SIGKILL)
    assert system.has_ended(child, 5.0)


def test_one_that_takes_too_much_memory_is_seen(started):
    process = started("kept = bytearray(64 << 20); print(flush=True); input()")
    process.stdout.readline()
    assert posix.is_over_memory([process.pid], 64 << 20)
    assert not posix.is_over_memory([process.pid], 1 << 30)


@SYSTEMS
def test_a_process_dies_with_its_parent(system, started):
    code = (
        f"import {system.__name__} as system; system.die_with_parent(); print(flush=True); import time; time.sleep(60)"
    )
    parent = started(f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {code!r}]); input()")
    parent.stdout.readline()
    (child,) = system.children_of(parent.pid)
    parent.kill()
    assert system.has_ended(child, 5.0)


WORKER = f"""
import json, sys
sys.path.insert(0, {str(OURS.parent)!r})
from assignment.system import posix
connection, caches = posix.taken(json.loads(sys.argv[1])["line"])
connection.sendall(caches.encode())
"""


def test_a_spare_is_taken_and_one_that_was_killed_is_replaced(tmp_path):
    (tmp_path / "assignment").mkdir()
    (tmp_path / "assignment/worker.py").write_text(WORKER)
    children = posix.child_starter(lambda *_: None, {"runtime": str(tmp_path)})
    for is_killed in (False, True):
        children.prepare()
        (spare,) = children.known()
        if is_killed:
            os.kill(spare, signal.SIGKILL)
        ours, theirs = socket.socketpair()
        pid = children.take(theirs.detach(), "abc")
        assert (pid == spare) != is_killed
        with ours:
            assert ours.recv(9) == b"abc"
        os.waitpid(pid, 0)
        assert not children.known()


def test_nothing_forks_there_once_pytorch_is_loaded(program):
    code = "import os, sys; sys.modules['torch'] = sys; os.fork()"
    done = subprocess.run([program, "-c", code], capture_output=True, text=True, timeout=60)
    assert "forked after PyTorch was loaded" in done.stderr


def test_what_is_taken_away_is_gone_in_every_process(program):
    code = "import os; assert not hasattr(os, 'pidfd_open'); open('/proc/self/stat')"
    again = (
        f"import subprocess, sys; print(subprocess.run([sys.executable, '-I', '-c', {code!r}], capture_output=True))"
    )
    done = subprocess.run([program, "-c", again], capture_output=True, text=True, timeout=60)
    assert "there is no /proc" in done.stdout, done


def test_a_check_gets_the_same_verdict_there(program):
    """Others: python -m assignment.tests.off_linux"""
    (case,) = (one for one in compared.all_cases() if one.name == "reference, one job")
    one = compared.Graded(case.name, case.files, compared.ONE)
    found = compared.report(one, program, 7)
    assert found["sandbox"] == "rlimits"
    assert found["problems"][0]["checks"][0]["status"] == "ok"
