"""How much longer than a quiet core this machine takes at the moment: it is old, or others share its cores."""

import time

ROUNDS = 4_000_000
QUIET_S = 0.1  # of processor time, for so many rounds on the quiet core that limits are meant for
MOST = 3.0


def slowness() -> float:
    """Return the factor by which limits of processor time grow here and now: 1 to MOST."""
    began, number = time.thread_time(), 0
    for i in range(ROUNDS):
        number ^= i
    return min(max((time.thread_time() - began) / QUIET_S, 1.0), MOST)
