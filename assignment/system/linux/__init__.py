"""Linux, as the interface says: a process that has loaded PyTorch is forked, and sandboxes are the kernel's."""

import multiprocessing

from assignment.system.linux.bubblewrap import problem, readable, remedy, seen
from assignment.system.linux.children import Children
from assignment.system.linux.confinement import (
    adopt_orphans,
    confine,
    die_with_parent,
    hide,
    interrupts_unheard,
    join_sandbox,
    limits,
    memory_limited,
)
from assignment.system.linux.lines import receive, send, socketpair, taken, widen
from assignment.system.linux.processes import (
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
from assignment.system.linux.starting import Nursery

CONTEXT = multiprocessing.get_context("fork")
FORKS = True
WATCH_EVERY_S = 0.1
child_starter, worker_starter = Children, Nursery
