"""Any POSIX system, such as macOS, as the interface says: processes start afresh, and only limits confine them."""

import multiprocessing

from assignment.system.posix.confinement import (
    adopt_orphans,
    confine,
    die_with_parent,
    hide,
    interrupts_unheard,
    join_sandbox,
    limits,
    memory_limited,
    problem,
    readable,
    remedy,
    seen,
)
from assignment.system.posix.lines import receive, send, socketpair, widen
from assignment.system.posix.processes import (
    children_of,
    cores,
    free_memory,
    has_ended,
    is_over_memory,
    name_of,
    tasks_of_this_user,
    unlinked,
    usage_of,
    use_cores,
)
from assignment.system.posix.starting import Fresh, Spares, taken

CONTEXT = multiprocessing.get_context("spawn")
FORKS = False
WATCH_EVERY_S = 0.5  # each look goes through all processes
child_starter, worker_starter = Spares, Fresh
