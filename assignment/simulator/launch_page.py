"""A page of a script's launches: one file, with all that it shows inside."""

import base64
from pathlib import Path

from .model import encoded
from .recording import Recording

_HERE = Path(__file__).parent / "viewer"


def write(path: Path, script: str, recording: Recording) -> str | None:
    """Write the page; returns the problem if it cannot."""
    if not recording.launches:
        return f"{path} was not written: the script launched no kernel"
    try:
        path.write_bytes(page(script, recording))
    except OSError as error:
        return f"{path} was not written: {error.strerror}"
    print(f"{path}: open it in a browser")
    return None


def page(script: str, recording: Recording) -> bytes:
    """Return the page."""
    from assignment.pages import Pages  # loads jinja2

    scripts = [_HERE / name for name in ("data.js", "geometry.js", "words.js", "pictures.js", "values.js", "main.js")]
    pages = Pages(_HERE, scripts=scripts, style=_HERE / "viewer.css")
    data = base64.b64encode(encoded(script, recording)).decode()
    return pages.page("viewer.html", title=f"{script} in the simulator", data=data)
