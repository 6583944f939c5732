"""Grade cs336_kernels/: `uv run grade.py --help`."""

from assignment.grading.cli import main

raise SystemExit(main())
