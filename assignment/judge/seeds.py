"""Random numbers of a run: a stream of its own for each purpose and test, keyed by the seed.

Who has seen all of one stream knows nothing of another, nor of the seed: what seeds a generator is an HMAC, and a
generator is given as much of it as it has state.
"""

import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

SEED_BITS = 64
WORDS = 624  # of 32 bits: the state of a Mersenne twister
STATE = slice(24, 24 + 8 * WORDS)  # where PyTorch keeps them, 8 bytes each


def new_seed() -> int:
    """Return a seed that nobody can guess."""
    return secrets.randbits(SEED_BITS)


def key(seed: int, *purpose: str) -> bytes:
    """Return 64 bytes that depend on the seed and the purpose alone."""
    return hmac.digest(str(seed).encode(), "\0".join(purpose).encode(), "sha512")


def number(seed: int, *purpose: str) -> int:
    """Return a number of 64 bits."""
    return int.from_bytes(key(seed, *purpose)[:8])


def generator(seed: int, *purpose: str) -> "torch.Generator":
    """Return PyTorch's generator for the CPU; its manual_seed() would look at 32 bits."""
    import numpy as np
    import torch

    words = np.frombuffer(hashlib.shake_256(key(seed, *purpose)).digest(4 * WORDS), "<u4")
    made = torch.Generator().manual_seed(0)
    state = made.get_state()
    state[STATE] = torch.from_numpy(words.astype("<u8").view(np.uint8))
    made.set_state(state)
    return made
