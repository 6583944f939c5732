"""The handout's figures are what the code draws, can be read on light and dark ground, and are told in words too."""

import re
from itertools import combinations
from xml.etree import ElementTree

import pytest
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextToPath

from assignment.figures import FIGURES, svg
from assignment.figures.__main__ import FOLDER

ROOT = FOLDER.parents[1]
HANDOUT = [ROOT / "handout.md", *(ROOT / "handout").glob("*.md")]
NAMESPACE = "{http://www.w3.org/2000/svg}"
INK = ["ink", "soft", "red-line", "green-line", "blue-line", "orange-line"]  # colours of words
FILLS = ["paper", "blue", "orange", "green", "red", "grey"]  # grounds of words in ink


def test_at_least_ten_figures_are_drawn_and_none_is_left_over():
    assert len(FIGURES) >= 10
    assert {path.name for path in FOLDER.iterdir()} == {f"{name}.svg" for name in FIGURES}


@pytest.mark.parametrize("name", FIGURES)
def test_the_committed_file_is_what_the_code_draws(name):
    """python -m assignment.figures writes them anew"""
    assert (FOLDER / f"{name}.svg").read_text(encoding="utf-8") == FIGURES[name]().svg()


def test_the_handout_shows_every_figure_and_says_it_in_words():
    """Each figure is in the handout once, with a description for those who do not see it"""
    text = "\n".join(page.read_text(encoding="utf-8") for page in HANDOUT)
    shown = re.findall(r"^!\[([^\]]*)\]\((?:handout/)?figures/(\w+)\.svg\)$", text, re.MULTILINE)
    assert sorted(name for _, name in shown) == sorted(FIGURES)
    for words, name in shown:
        assert len(words) >= 40, f"{name}: {words!r} is no description"


def boxes_of_text(name: str) -> list[tuple[str, float, float, float, float]]:
    """(words, left, top, right, bottom) of every text, in the widest of the fonts that a reader may have."""
    measure, found = TextToPath(), []
    for text in ElementTree.parse(FOLDER / f"{name}.svg").iter(f"{NAMESPACE}text"):
        size, weight = float(text.attrib["font-size"]), text.attrib.get("font-weight", "normal")
        font = FontProperties(family="DejaVu Sans", size=size, weight=weight)
        width, _, _ = measure.get_text_width_height_descent("".join(text.itertext()), font, ismath=False)
        x, y = float(text.attrib["x"]), float(text.attrib["y"])
        left = x - width * {"start": 0, "middle": 0.5, "end": 1}[text.attrib.get("text-anchor", "start")]
        found.append(("".join(text.itertext()), left, y - 0.75 * size, left + width, y + 0.2 * size))
    return found


@pytest.mark.parametrize("name", FIGURES)
def test_no_words_are_clipped(name):
    drawing = FIGURES[name]()
    for words, left, top, right, bottom in boxes_of_text(name):
        assert min(left, top) >= 2, words
        assert right <= drawing.width - 2, words
        assert bottom <= drawing.height - 2, words


@pytest.mark.parametrize("name", FIGURES)
def test_no_words_lie_on_others(name):
    for (a, a_left, a_top, a_right, a_bottom), (b, left, top, right, bottom) in combinations(boxes_of_text(name), 2):
        apart = a_right <= left or right <= a_left or a_bottom <= top or bottom <= a_top
        assert apart, f"{a!r} and {b!r}"


def luminance(colour: str) -> float:
    """Of WCAG 2.2."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("colours", [svg.LIGHT, svg.DARK], ids=["light", "dark"])
def test_words_stand_out_from_their_ground(colours):
    """At least 4.5 to 1, as WCAG asks for text: all words on the paper, ink on every fill"""
    pairs = [(word, "paper") for word in INK] + [("ink", fill) for fill in FILLS] + [("soft", "grey")]
    for word, ground in pairs:
        dark, light = sorted((luminance(colours[word]), luminance(colours[ground])))
        assert (light + 0.05) / (dark + 0.05) >= 4.5, f"{word} on {ground}"


def test_both_grounds_have_the_same_colours():
    assert svg.LIGHT.keys() == svg.DARK.keys()


@pytest.mark.parametrize("name", FIGURES)
def test_every_character_is_in_ordinary_fonts(name):
    """A renderer without font fallback draws no superscript: 10 to the 38th would be 10"""
    written = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert not set(written) & set(svg.SUPERSCRIPTS)
