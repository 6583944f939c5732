"""Pages of HTML: one file each, which fetches nothing and in which a student's text is text."""

import base64
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

HERE = Path(__file__).parent


def _allowed(code: str) -> str:
    """Return the source of a Content-Security-Policy that is this text and no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'"


def policy(style: str, script: str) -> str:
    """Return the Content-Security-Policy of a page that has these two, and fetches nothing."""
    return (
        f"default-src 'none'; style-src {_allowed(style)}; script-src {_allowed(script)}; "
        "base-uri 'none'; form-action 'none'"
    )


def number(value: float | None, digits: int = 2) -> str:
    """Return a number without zeros at its end."""
    return "–" if value is None else f"{round(value, digits):g}"


def percent(value: float) -> str:
    """Return a share in percent, 100 % and 0 % only where that is exact."""
    rounded = round(100 * value)
    if rounded in (0, 100) and value not in (0.0, 1.0):
        return "< 1 %" if value < 0.5 else "> 99 %"
    return f"{rounded} %"


def breakable(name: str) -> Markup:
    """Return a name that may be broken into lines at what joins its words."""
    return Markup(re.sub(r"(::|[_-]|(?<=[a-z])(?=[A-Z]))", r"\1<wbr>", str(escape(name))))


def duration(seconds: float) -> str:
    """Return seconds in words."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


class Pages:
    """The templates of some folders, those that all pages share last."""

    def __init__(
        self, *folders: Path, scripts: Sequence[Path] = (HERE / "sort.js",), style: Path | None = None, **known: Any
    ) -> None:
        """Read templates from `folders` too.

        Args:
            scripts: the parts of the module of every page.
            style: of every page, after what all share.
            known: names that all templates may use.
        """
        sheets = [HERE / "style.css", *([style] if style else [])]
        styles = "".join(sheet.read_text(encoding="utf-8") for sheet in sheets)
        code = "\n".join(script.read_text(encoding="utf-8") for script in scripts)
        self._made = jinja2.Environment(
            loader=jinja2.FileSystemLoader([*folders, HERE]),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._made.filters.update(number=number, percent=percent, duration=duration, breakable=breakable)
        self._made.globals.update(policy=policy(styles, code), style=Markup(styles), script=Markup(code), **known)

    def page(self, template: str, **data: Any) -> bytes:
        """Return a page."""
        return self._made.get_template(template).render(**data).encode(errors="replace")
