"""The device in place of a GPU: host code sees an H100, and fresh memory is NaN."""

import warnings

from .builder import TARGET
from .host import Driver
from .one_gpu import answer_questions
from .properties import H100
from .triton_private import driver
from .undefined import fill_fresh_memory


def install() -> None:
    """Install the device."""
    driver.set_active(Driver(TARGET, H100))
    answer_questions(H100)
    fill_fresh_memory()
    warnings.filterwarnings("ignore", message=".*does not have a deterministic implementation.*")
