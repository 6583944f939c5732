"""Landlock, by its raw system calls: which files the calling process may reach.

Newer kernels can also restrict TCP, devices' controls and signals to processes outside.
"""

import ctypes
import os
import stat
import struct
from collections.abc import Iterable

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same on every architecture
VERSION, PATH_BENEATH = 1, 1
# how many file rights a version of the interface knows; 16 from 5 on
RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE, IOCTL_DEV = (1 << bit for bit in (0, 1, 2, 3, 14, 15))
READ = EXECUTE | READ_FILE | READ_DIR
# the rest are rights in a folder
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
TCP = 0b11  # bind, connect; version 4
ABSTRACT_SOCKETS, SIGNALS = 1, 2  # version 6


def version() -> int:
    """Return the version of the kernel's interface; 0 without Landlock."""
    return max(0, ctypes.CDLL(None).syscall(CREATE_RULESET, None, 0, VERSION))


def restrict(readable: Iterable[str], writable: Iterable[str], has_sockets: bool) -> None:
    """Restrict the calling process to these files and folders, and what is below them.

    It can still learn whether a path exists. Needs no_new_privs.
    """
    known = version()
    handled = (1 << RIGHTS.get(known, 16)) - 1
    scoped = (SIGNALS | (0 if has_sockets else ABSTRACT_SOCKETS)) if known >= 6 else 0
    attributes = struct.pack("QQQ", handled, TCP if known >= 4 else 0, scoped)
    ruleset = call(CREATE_RULESET, attributes, len(attributes), 0)
    for paths, rights in ((readable, READ), (writable, handled)):
        for path in paths:
            add_rule(ruleset, path, rights & handled)
    call(RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def add_rule(ruleset: int, path: str, rights: int) -> None:
    """Allow access to a path; if it does not exist, nothing is allowed."""
    try:
        target = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not stat.S_ISDIR(os.fstat(target).st_mode):
        rights &= OF_FILES
    call(ADD_RULE, ruleset, PATH_BENEATH, struct.pack("=Qi", rights, target), 0)
    os.close(target)


def call(number: int, *arguments: int | bytes) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "Landlock refused")
    return result
