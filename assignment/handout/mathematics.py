"""LaTeX in the handout as MathML, which browsers draw without a script: an extension of Python-Markdown."""

import re

from latex2mathml.converter import convert
from markdown import Extension, Markdown
from markdown.inlinepatterns import InlineProcessor

INLINE = r"(?<!\\)\$(?!\s)((?:\\.|[^$\\])+?)(?<!\s)\$(?!\d)"  # between dollars
BEFORE_ESCAPES = 185  # of Python-Markdown's own patterns: after code, before backslashes


def mathml(latex: str, display: str) -> str:
    """Return a formula as an element <math>; `display` is "block" or "inline"."""
    return convert(" ".join(latex.split()).replace("{aligned}", "{align*}"), display=display)


def fence(source: str, *_: object, **__: object) -> str:
    """Return a block ```math as HTML, for pymdownx.superfences."""
    return f'<div class="formula">{mathml(source, "block")}</div>'


class Inline(InlineProcessor):
    """A formula within a line."""

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[str, int, int]:  # noqa: N802
        """Return what stands for the formula until the page is written, and the formula's place."""
        return self.md.htmlStash.store(mathml(m[1], "inline")), m.start(0), m.end(0)


class Mathematics(Extension):
    """Formulas between dollars."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802  # Python-Markdown's name
        """Register the pattern."""
        md.inlinePatterns.register(Inline(INLINE, md), "mathematics", BEFORE_ESCAPES)


def makeExtension(**_: object) -> Mathematics:  # noqa: N802  # Python-Markdown's name
    """Return the extension."""
    return Mathematics()
