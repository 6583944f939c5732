"""A drawing: rectangles, lines, arrows and text, as SVG in two sets of colours."""

import re
from html import escape
from math import hypot

LIGHT = {
    "paper": "#ffffff", "ink": "#1f2328", "soft": "#59636e", "grid": "#d1d9e0",
    "blue": "#cfe4ff", "orange": "#ffdfb8", "green": "#c9ecd0", "red": "#ffd3d0", "grey": "#e9edf1",
    "blue-line": "#0969da", "orange-line": "#9a4f00", "green-line": "#1a7f37", "red-line": "#cf222e",
    "grey-line": "#818b98",
}  # fmt: skip
DARK = {
    "paper": "#0d1117", "ink": "#f0f6fc", "soft": "#a5adb8", "grid": "#3d444d",
    "blue": "#123a6b", "orange": "#5c3710", "green": "#12482a", "red": "#67201f", "grey": "#262c36",
    "blue-line": "#58a6ff", "orange-line": "#f0983e", "green-line": "#3fb950", "red-line": "#ff7b72",
    "grey-line": "#838c98",
}  # fmt: skip
SUPERSCRIPTS, ORDINARY = "⁰¹²³⁴⁵⁶⁷⁸⁹⁻ᵀ", "0123456789−T"
FONT = "Helvetica, Arial, 'DejaVu Sans', sans-serif"


def number(value: float) -> str:
    """Return the shortest way to write a coordinate to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0").replace("-0", "0" if value > -0.05 else "-0")


def rules(colours: dict[str, str]) -> str:
    """Return fill classes by colour name, and stroke classes as stroke-name."""
    return "".join(f".{name}{{fill:{c}}}.stroke-{name}{{stroke:{c}}}" for name, c in colours.items())


def with_superscripts(line: str, size: float) -> str:
    """Return a line whose superscripts are ordinary characters, small and shifted: many fonts lack the others."""
    parts = re.split(f"([{SUPERSCRIPTS}]+)", line)
    rise, words = number(0.35 * size), [parts[0]]
    for small, rest in zip(parts[1::2], parts[2::2], strict=True):
        plain = small.translate(str.maketrans(SUPERSCRIPTS, ORDINARY))
        words.append(f'<tspan dy="-{rise}" font-size="{number(0.7 * size)}">{plain}</tspan>')
        words.append(f'<tspan dy="{rise}">{rest}</tspan>' if rest else "")
    return "".join(words)


class Drawing:
    """Collects elements; `svg()` is the file. Coordinates are pixels from the top left."""

    def __init__(self, width: int, height: int, title: str):
        self.width, self.height, self.title = width, height, title
        self.elements: list[str] = []

    def rect(self, x: float, y: float, width: float, height: float, fill="none", stroke="grey-line", *, dash=False,
             radius: float = 0, thick: float = 1) -> None:  # fmt: skip
        """Draw a rectangle; fill and stroke name colours.

        "none" leaves one out, "hatch" fills with slanted lines.
        """
        self.elements.append(
            f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
            + (f' rx="{number(radius)}"' if radius else "")
            + self.paint(fill, stroke, dash=dash, thick=thick)
        )

    def path(self, points: list[tuple[float, float]], stroke="ink", fill="none", *, dash=False, thick=1.5) -> None:
        """Draw a line through points."""
        d = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)
        self.elements.append(f'<path d="{d}"' + self.paint(fill, stroke, dash=dash, thick=thick))

    def line(self, x1: float, y1: float, x2: float, y2: float, stroke="ink", *, dash=False, thick=1.5) -> None:
        self.path([(x1, y1), (x2, y2)], stroke, dash=dash, thick=thick)

    def arrow(self, x1: float, y1: float, x2: float, y2: float, stroke="soft", *, dash=False, thick=1.5) -> None:
        """Draw a line with its head at (x2, y2)."""
        length = hypot(x2 - x1, y2 - y1)
        ux, uy = (x2 - x1) / length, (y2 - y1) / length
        bx, by = x2 - 8 * ux, y2 - 8 * uy
        self.line(x1, y1, bx, by, stroke, dash=dash, thick=thick)
        self.path([(x2, y2), (bx - 4 * uy, by + 4 * ux), (bx + 4 * uy, by - 4 * ux), (x2, y2)], "none", stroke)

    def dot(self, x: float, y: float, fill: str, radius: float = 4) -> None:
        self.elements.append(f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(radius)}" class="{fill}"/>')

    def text(self, x: float, y: float, words: str, *, anchor="start", size=13, colour="ink", bold=False) -> None:
        """Write text on the base line y; anchor is start, middle or end.

        Several lines are joined by line breaks.
        """
        for row, line in enumerate(words.split("\n")):
            self.elements.append(
                f'<text x="{number(x)}" y="{number(y + row * (size + 4))}" class="{colour}" font-size="{size}"'
                + (f' text-anchor="{anchor}"' if anchor != "start" else "")
                + (' font-weight="bold"' if bold else "")
                + f">{with_superscripts(escape(line, quote=False), size)}</text>"
            )

    def note(self, x: float, y: float, words: str, *, anchor="start") -> None:
        """Write a remark, in smaller and softer letters."""
        self.text(x, y, words, anchor=anchor, size=12, colour="soft")

    def box(self, x: float, y: float, width: float, height: float, words: str, colour="grey", *, size=13) -> None:
        """Draw a filled rectangle with text in its middle."""
        self.rect(x, y, width, height, colour, f"{colour}-line", radius=3)
        lines = words.count("\n")
        self.text(
            x + width / 2, y + height / 2 + 0.36 * size - lines * (size + 4) / 2, words, anchor="middle", size=size
        )

    def paint(self, fill: str, stroke: str, *, dash: bool, thick: float) -> str:
        classes = [fill] if fill not in ("none", "hatch") else []
        classes += [f"stroke-{stroke}"] if stroke != "none" else []
        return (
            (f' class="{" ".join(classes)}"' if classes else "")
            + {"none": ' fill="none"', "hatch": ' fill="url(#hatch)"'}.get(fill, "")
            + (f' stroke-width="{number(thick)}"' if stroke != "none" and thick != 1 else "")
            + (' stroke-dasharray="4 3"' if dash else "")
            + "/>"
        )

    def svg(self) -> str:
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}"'
                f' width="{self.width}" height="{self.height}" role="img" font-family="{FONT}">',
                f"<title>{escape(self.title, quote=False)}</title>",
                f"<style>{rules(LIGHT)}",
                f"@media (prefers-color-scheme: dark){{{rules(DARK)}}}</style>",
                '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse">'
                '<path d="M-1 1L1 -1M0 6L6 0M5 7L7 5" class="stroke-grey-line" fill="none"/></pattern></defs>',
                f'<rect width="{self.width}" height="{self.height}" class="paper"/>',
                *self.elements,
                "</svg>\n",
            ]
        )
