"""The limits of a worker's processes."""

import resource

from assignment.system import here
from assignment.system.interface import ON_GPU

# bytes beyond what the libraries map; a view past 2**31 float32 elements needs over 8 GiB
ADDRESS_SPACE = 12 << 30
FILE_SIZE = 256 << 20
OPEN_FILES = dict.fromkeys(ON_GPU, 4096)  # 256 in others
# processes and threads of one user beyond those that there are; the kernel does not count root's
TASKS = 512
CPU_TIME_S = 3600  # so that a process whose grader is gone ends at last


def limit(device: str) -> None:
    """Set limits that the calling process and its children can never raise again."""
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: FILE_SIZE,
        resource.RLIMIT_NOFILE: OPEN_FILES.get(device, 256),
        resource.RLIMIT_CPU: CPU_TIME_S,
        resource.RLIMIT_NPROC: here.tasks_of_this_user() + TASKS,
        **here.limits(0 if device in ON_GPU else ADDRESS_SPACE),  # on a GPU they map far more than they use
    }
    for name, wanted in limits.items():
        hard = resource.getrlimit(name)[1]
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(name, (value, value))
