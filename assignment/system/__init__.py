"""What differs between operating systems: `here` is the one that this process runs on.

interface  what the others may ask
linux      with its sandboxes; a process that has loaded PyTorch is forked
posix      any other, such as macOS: every process is a fresh interpreter, and nothing but limits confines it
"""

import sys

from assignment.system.interface import System

here: System
if sys.platform == "linux":
    from assignment.system import linux

    here = linux
else:
    from assignment.system import posix

    here = posix
