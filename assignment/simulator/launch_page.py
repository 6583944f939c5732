"""A page of launches: one file, with all that it shows inside."""

import base64
from pathlib import Path

_HERE = Path(__file__).parent / "viewer"


def write(path: Path, what: str, block: bytes) -> str | None:
    """Write the page of what was run, whose launches are in a block (model.encoded); returns the problem if it cannot.

    Without launches the block is empty.
    """
    if not block:
        return f"{path} was not written: {what} launched no kernel"
    try:
        path.write_bytes(page(what, block))
    except OSError as error:
        return f"{path} was not written: {error.strerror}"
    print(f"{path}: open it in a browser")
    return None


def page(what: str, block: bytes) -> bytes:
    """Return the page."""
    from assignment.pages import Pages  # loads jinja2

    scripts = [_HERE / name for name in ("data.js", "geometry.js", "words.js", "pictures.js", "values.js", "main.js")]
    pages = Pages(_HERE, scripts=scripts, style=_HERE / "viewer.css")
    data = base64.b64encode(block).decode()
    return pages.page("viewer.html", title=f"{what} in the simulator", data=data)
