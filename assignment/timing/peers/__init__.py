"""What submissions are compared with: the student's functions, implemented by other libraries.

This package runs as a submission does, in a separate worker, with the peers of each operator in a
package beside it: flash2__flash_forward_triton is the function of that name in flash2.py of one of
them. A function that a module lacks has no such peer, nor has one whose package is not installed.
"""

import importlib
import pkgutil
from pathlib import Path


def __getattr__(name):
    peer, separator, function = name.partition("__")
    if not peer or not separator:
        raise AttributeError(name)
    for operator in (module.name for module in pkgutil.iter_modules(__path__) if module.ispkg):
        if Path(__path__[0], operator, f"{peer}.py").is_file():
            found = getattr(importlib.import_module(f"{__name__}.{operator}.{peer}"), function, None)
            if found is not None:
                return found
    raise AttributeError(name)
