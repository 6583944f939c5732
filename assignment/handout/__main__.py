"""`python -m assignment.handout --to DIR`: write the handout as a website."""

import argparse
import logging
import sys
import tempfile
from pathlib import Path

from assignment.course import CourseError
from assignment.handout import website
from assignment.handout.in_course import StaleText


def build(to: Path, root: Path = website.ROOT) -> None:
    """Write the website to an empty folder."""
    from mkdocs.commands.build import build as build_site
    from mkdocs.config import load_config

    with tempfile.TemporaryDirectory() as folder:
        docs = Path(folder, "docs")
        website.copy(docs, root)
        empty = Path(folder, "mkdocs.yml")  # mkdocs wants a file beside its settings
        empty.write_text("site_name: handout\n", encoding="utf-8")
        build_site(load_config(str(empty), **website.configuration(docs, to.resolve(), root)))


def folder_in(arguments: list[str] | None = None) -> Path:
    """Return the folder to write to; exits with 2 where it is in use."""
    parser = argparse.ArgumentParser(prog="python -m assignment.handout", description=(__doc__ or "").splitlines()[0])
    empty = "an empty folder, or one that is not there"
    parser.add_argument("--to", metavar="DIR", type=Path, required=True, help=empty)
    to: Path = parser.parse_args(arguments).to
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        parser.error(f"{to}: expected an empty folder, or none of this name")
    return to


def main(arguments: list[str] | None = None) -> int:
    """Build the site; returns the exit status."""
    to = folder_in(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        build(to)
    except (CourseError, StaleText) as error:
        print(f"handout: {error}", file=sys.stderr)
        return 2
    print(f"{to / 'index.html'}: open it in a browser; no server is needed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
