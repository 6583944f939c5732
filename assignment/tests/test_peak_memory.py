"""How much memory a grade takes is measured: of all processes, and what they share is counted once."""

import subprocess
import sys
import time

from assignment.bank.run import peak_memory
from assignment.bank.run.watching import watching

MIB = 1 << 20
FAMILY = """
import os, time
held = bytearray(os.urandom(1)) * (64 << 20)
for _ in range(3):
    if not os.fork():
        own = bytearray(os.urandom(1)) * (32 << 20)
        time.sleep(60)
print("ready", flush=True)
time.sleep(60)
"""


def test_all_processes_are_measured_and_shared_pages_once():
    with subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        family = [process.pid, *(child.pid for child in peak_memory.descendants(process.pid))]
        wanted, found = (64 + 3 * 32) * MIB, 0
        watch = peak_memory.PeakWatch(process.pid)
        with watching(watch.look, peak_memory.LOOK_EVERY_S):
            for _ in range(100):  # until the last of them holds its own
                if (found := watch.most) >= wanted:
                    break
                time.sleep(0.1)
        subprocess.run(["kill", *map(str, reversed(family))], check=True)
    assert len(family) == 4
    assert wanted <= found < wanted + 64 * MIB


def test_a_process_that_is_gone_takes_nothing():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
        watch = peak_memory.PeakWatch(process.pid)
        watch.look()
        assert watch.most == 0
        assert peak_memory.descendants(process.pid) == []
