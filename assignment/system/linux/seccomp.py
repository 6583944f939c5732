"""A system-call filter for the process that runs a submission: classic BPF, assembled by hand.

It forbids what Landlock and name spaces leave open: sockets, other processes, their limits and
priorities, metadata of files, objects that outlive the run, and parts of the kernel that are common
targets of exploits. Everything else is allowed: PyTorch and CUDA use a great deal.
"""

import ctypes
import errno
import os
import platform
import struct

# of each its number on x86_64 and on aarch64, - where it is not there
FORBIDDEN = """
ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, kcmp 312 272, pidfd_open 434 434,
pidfd_getfd 438 438, pidfd_send_signal 424 424, tkill 200 130, process_madvise 440 440, move_pages 279 239,
migrate_pages 256 238, mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, move_mount 429 429,
open_tree 428 428, fsopen 430 430, fsconfig 431 431, fsmount 432 432, fspick 433 433, mount_setattr 442 442,
unshare 272 97, setns 308 268, bpf 321 280, keyctl 250 219, add_key 248 217, request_key 249 218,
userfaultfd 323 282, perf_event_open 298 241, fanotify_init 300 262, io_uring_setup 425 425, io_uring_enter 426 426,
io_uring_register 427 427, open_by_handle_at 304 265, quotactl 179 60, quotactl_fd 443 443, acct 163 89,
init_module 175 105, finit_module 313 273, delete_module 176 106, kexec_load 246 104, kexec_file_load 320 294,
reboot 169 142, swapon 167 224, swapoff 168 225, sethostname 170 161, setdomainname 171 162, syslog 103 116,
settimeofday 164 170, clock_settime 227 112, clock_adjtime 305 266, adjtimex 159 171, vhangup 153 58
"""
LASTING = "shmget 29 194, semget 64 190, msgget 68 186, mq_open 240 180"  # what these make outlives the process
# Landlock guards the contents of files, not their modes and owners: by these calls a submission could make its owner's
# files unreadable.
METADATA = """
chmod 90 -, fchmod 91 52, fchmodat 268 53, chown 92 -, lchown 94 -, fchown 93 55, fchownat 260 54, setxattr 188 5,
lsetxattr 189 6, fsetxattr 190 7, removexattr 197 14, lremovexattr 198 15, fremovexattr 199 16, truncate 76 45,
utime 132 -, utimes 235 -, futimesat 261 -, utimensat 280 88
"""
CLONE, CLONE3, FORK, VFORK = (56, 220), (435, 435), (57, None), (58, None)
SOCKET, SOCKETPAIR, PRCTL, FCNTL = (41, 198), (53, 199), (157, 167), (72, 25)
SIGNALS = "kill 62 129, tgkill 234 131, rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240"
SETSID, SETPGID = (112, 157), (109, 154)
# whose first argument, or second one, names a process, 0 being the caller
OWN_OR_ZERO = """
prlimit64 302 261, sched_setaffinity 203 122, sched_setscheduler 144 119, sched_setparam 142 118,
sched_setattr 314 274
"""
OWN_OR_ZERO_SECOND = "setpriority 141 140, ioprio_set 251 30"
LAST = 450  # the last number that this table knows of; glibc does without later ones

CLONE_THREAD, NEW_NAMESPACES = 0x10000, 0x7E020000
AF_UNIX, SOCK_STREAM, SOCK_TYPE = 1, 1, 0xF
F_SETOWN, F_SETOWN_EX = 8, 15  # signals by way of a file
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_PTRACER = 1, 4, 0x59616D61

LOAD, EQUAL, AT_LEAST, ANY_BIT, AND, RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16  # offsets into struct seccomp_data
ALLOWED, KILLED, ERROR = 0x7FFF0000, 0x80000000, 0x00050000
# column of the tables, AUDIT_ARCH
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand


def is_supported() -> bool:
    """Return whether this machine's call numbers are known and its kernel has filters."""
    if platform.machine() not in MACHINES:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    # PR_SET_SECCOMP with a filter at no address: a fault, where filters are known
    libc.prctl(22, 2, None, 0, 0)
    return ctypes.get_errno() == errno.EFAULT


def install(has_processes: bool, has_sockets: bool) -> None:
    """Filter the calling process for good; it may be allowed processes and Unix sockets."""
    program = b"".join(struct.pack("HBBI", *instruction) for instruction in assemble(has_processes, has_sockets))
    buffer = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(22, 2, header, 0, 0):
        raise OSError(ctypes.get_errno(), "the system-call filter was refused")


def assemble(has_processes: bool, has_sockets: bool) -> list[Instruction]:
    """Return the filter for the calling process: it, and its parent, are named in it."""
    column, architecture = MACHINES[platform.machine()]
    code = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, architecture), (RETURN, 0, 0, KILLED), (LOAD, 0, 0, NUMBER)]
    # on x86_64 also the x32 calls, from 2**30 on
    code += [(AT_LEAST, 0, 1, LAST + 1), failing(errno.ENOSYS)]
    for numbers, body in rules(has_processes, has_sockets):
        if numbers[column] is not None:
            code += [(EQUAL, 0, len(body), numbers[column]), *body]
    return [*code, (RETURN, 0, 0, ALLOWED)]


def rules(has_processes: bool, has_sockets: bool) -> list[tuple[tuple, list[Instruction]]]:
    """Return system calls, each with what happens instead; every body ends with a return."""
    refused = [failing(errno.EPERM)]
    own, parent = os.getpid(), os.getppid()
    only_own = [argument(0), *allowed_if(own), *refused]
    not_the_parent = [argument(0), *refused_if(parent), *refused_if(0xFFFFFFFF), (RETURN, 0, 0, ALLOWED)]
    signals = not_the_parent if has_processes else only_own
    return [
        *((numbers, refused) for table in (FORBIDDEN, LASTING, METADATA) for numbers in numbers_in(table)),
        *((numbers, signals) for numbers in numbers_in(SIGNALS)),
        *((numbers, [argument(0), *allowed_if(0, own), *refused]) for numbers in numbers_in(OWN_OR_ZERO)),
        *((numbers, [argument(1), *allowed_if(0, own), *refused]) for numbers in numbers_in(OWN_OR_ZERO_SECOND)),
        (FCNTL, [argument(1), *refused_if(F_SETOWN, F_SETOWN_EX), (RETURN, 0, 0, ALLOWED)]),
        (PRCTL, [argument(0), *refused_if(PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_PTRACER), (RETURN, 0, 0, ALLOWED)]),
        (SOCKET, [argument(0), *(allowed_if(AF_UNIX) if has_sockets else []), failing(errno.EACCES)]),
        (SOCKETPAIR, [argument(1), (AND, 0, 0, SOCK_TYPE), *allowed_if(SOCK_STREAM), failing(errno.EACCES)]),
        *process_rules(has_processes),
    ]


def numbers_in(table: str) -> list[tuple]:
    """Return the numbers of system calls by machine, None where it has no such call."""
    return [tuple(None if word == "-" else int(word) for word in call.split()[1:]) for call in table.split(",")]


def process_rules(has_processes: bool) -> list[tuple[tuple, list[Instruction]]]:
    """Return the rules for starting processes.

    clone3 hides its flags behind a pointer: refused as unknown, it makes the C library fall back to
    clone. Where no process may be started, a program to be run is "not found", as on a machine that
    lacks it: code that asks for nvidia-smi is prepared for that. Where some may, all stay in one
    group, which one signal ends.
    """
    pretended = [failing(0)]
    not_found, allowed = failing(errno.ENOENT), (RETURN, 0, 0, ALLOWED)
    clone3 = (CLONE3, [failing(errno.ENOSYS)])
    if has_processes:
        clone = (CLONE, [argument(0), (ANY_BIT, 0, 1, NEW_NAMESPACES), failing(errno.EPERM), allowed])
        return [clone3, clone, (SETSID, pretended), (SETPGID, pretended)]
    thread_only = [argument(0), (ANY_BIT, 0, 1, CLONE_THREAD), allowed, not_found]
    return [clone3, (CLONE, thread_only), (VFORK, [not_found]), (FORK, [not_found])]


def argument(index: int) -> Instruction:
    """Load the lower half of an argument; flags and process ids have no more."""
    return (LOAD, 0, 0, ARGUMENTS + 8 * index)


def failing(number: int) -> Instruction:
    return (RETURN, 0, 0, ERROR | number)


def allowed_if(*values: int) -> list[Instruction]:
    return [step for value in values for step in ((EQUAL, 0, 1, value), (RETURN, 0, 0, ALLOWED))]


def refused_if(*values: int) -> list[Instruction]:
    return [step for value in values for step in ((EQUAL, 0, 1, value), failing(errno.EPERM))]
