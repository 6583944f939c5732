"""The handout and README as a course has them: with its points and its name, without what it leaves out.

What a text takes from the course has a comment behind it, which is gone where the course's own value is put:

    # CS336 kernels<!-- title -->
    the address that your course gives<!-- repository -->
    20<!-- points:NAME -->            of a problem, a check, `all` problems, or those that can be graded `here`, without
                                      a GPU; "practice" of a problem that has none. A line of a table or list is left
                                      out with a problem that is off.
    20 points<!-- worth:NAME -->      likewise, with the word; "Practice: no points"
    <!-- of:NAME -->                  at the end of a line, an item of a list or a heading with its section that is left
                                      out with the problem
    <!-- BEGIN TOTALS --> and END     around what a first grade prints
    <!-- exercises: NAME … -->        functions for which the page's notebook has cells; goes in any course

The first page has the course's dates below its heading. A problem that is off takes its section with it, and a chapter
of nothing else; a link to them becomes its words, and the first problem stands in examples of commands.
"""

import posixpath
import re
from collections.abc import Iterable, Mapping

from assignment.commands.handout import headings
from assignment.course import PRACTICE, Course, course
from assignment.verdict import checks
from assignment.verdict.checks import SPEED, SPEED_PROBLEM, Check, Problem
from tests import operators

PAGE = re.compile(r"(?:README|handout|handout/\w+)\.md")
FIRST = "handout.md"
ALL, HERE = "all", "here"
TITLE = re.compile(r"(?<=# )[^\n]*?<!-- title -->")
NUMBER = re.compile(r"(\d[\d.]*|practice)<!-- points:(\S+) -->")
WORTH = re.compile(r"(\d[\d.]* points|Practice: no points)<!-- worth:(\S+) -->")
OF = re.compile(r" *<!-- of:(\S+) -->")
ADDRESS = "the address that your course gives<!-- repository -->"
EXERCISES = re.compile(r"<!-- exercises: (.*?) -->")
TOTALS = re.compile(r"(<!-- BEGIN TOTALS -->\n```text\n)(.*?)(```\n<!-- END TOTALS -->\n)", re.DOTALL)
EXAMPLE = re.compile(r"(--(?:only|explain) )([a-z][\w.:/]*)")
OUTPUT = "```text"  # begins what a command prints, as an example
MARKUP = re.compile(r"[\\`*_<\[]")
PROBLEMS = {**operators.problems(), SPEED: SPEED_PROBLEM}
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
UNMARKED = re.compile(r"(?<![\w.])\d[\d.]* points\b(?!<!--)")


class StaleText(Exception):
    """A text cannot be made to agree with the course; the message has file and line, and what to do."""


def pages(texts: Mapping[str, str]) -> dict[str, str]:
    """Return those of these pages, by path, that the course of this tree has, as it has them; raises StaleText."""
    return Texts(course(), checks.problems(), checks.declared()).written(texts)


class Texts:
    """A course's texts: those of the repository, rewritten."""

    def __init__(self, of: Course, problems: Mapping[str, Problem], found: Iterable[Check]) -> None:
        self._course, self._problems = of, problems
        graded = {one.name: one.points for one in problems.values() if not one.is_practice}
        self._all, self._here = sum(graded.values()), sum(graded.values()) - graded.get(SPEED, 0.0)
        found = list(found)
        self._timed = {check.name: check for check in found if check.problem == SPEED}
        self._worth: dict[str, float | str] = {check.name: check.points for check in found}
        self._worth |= {name: graded.get(name, PRACTICE) for name in problems} | {ALL: self._all, HERE: self._here}

    def written(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Return pages by path as the course has them; raises StaleText."""
        table = texts.get(FIRST, "")
        for one in self._problems.values():
            if (
                "<!-- points:" in table
                and one.points
                and not one.is_practice
                and f"<!-- points:{one.name} -->" not in table
            ):
                row = f"| … | … | {one.points:g}<!-- points:{one.name} --> |"
                raise StaleText(f"{FIRST}: {one.name} is graded, and no row of a table says so: add {row}")
        left = {path: self._page(path, text) for path, text in texts.items() if not self._is_off(path)}
        known = {path: {anchor for _, _, anchor in headings(text.splitlines())} for path, text in left.items()}
        gone = {f"{path}#{a}" for path, text in texts.items() for _, _, a in headings(text.splitlines())}
        gone = {one for one in gone if one.partition("#")[2] not in known.get(one.partition("#")[0], ())}
        gone |= texts.keys() - left.keys()
        return {path: _without_links(path, text, gone) for path, text in left.items()}

    def _is_off(self, path: str) -> bool:
        """Return whether all problems of a chapter are off."""
        own = [one.name for one in operators.problems().values() if one.section.partition("#")[0] == path]
        return bool(own) and not any(name in self._problems for name in own)

    def _page(self, path: str, text: str) -> str:
        source = text.split("\n")
        if path == SPEED_PROBLEM.section.partition("#")[0]:
            source = self._with_all_that_is_timed(source)
        text = "\n".join(self._without_lines(self._without_sections(path, source)))
        text = EXERCISES.sub("", text)
        text = TOTALS.sub(lambda _: f"```text\n{self._totals()}```\n", text)
        text = text.replace(ADDRESS, self._course.repository or ADDRESS.partition("<")[0])
        text = TITLE.sub(lambda _: MARKUP.sub(r"\\\g<0>", self._course.heading), text)
        text = self._with_dates(text) if path == FIRST else text
        lines, fence = text.split("\n"), ""
        for i, line in enumerate(lines):
            if line.startswith("```"):
                fence = "" if fence else line
            elif not fence:
                lines[i] = self._line(f"{path}:{(source.index(line) if line in source else i) + 1}", line)
            if fence != OUTPUT:
                lines[i] = EXAMPLE.sub(lambda found: found[1] + self._example(found[2]), lines[i])
        return "\n".join(lines)

    def _with_all_that_is_timed(self, lines: list[str]) -> list[str]:
        """Return lines with a row for each timed check that has none, below the last row of another."""
        rows = [i for i, line in enumerate(lines) if any(f"<!-- points:{name} -->" in line for name in self._timed)]
        told = "".join(lines[i] for i in rows)
        more = [
            f"| `{check.function}` | {check.points:g}<!-- points:{name} --> | {check.claim} | | |"
            for name, check in self._timed.items()
            if rows and f":{name} " not in told
        ]
        return lines[: rows[-1] + 1] + more + lines[rows[-1] + 1 :] if rows else lines

    def _without_sections(self, path: str, lines: list[str]) -> list[str]:
        """Return lines without the sections of what is off: a problem's own, and those whose heading says so."""
        sections = [one.section.partition("#") for name, one in PROBLEMS.items() if name not in self._problems]
        gone = [anchor for file, _, anchor in sections if file == path and anchor]
        gone += [anchor for at, _, anchor in headings(lines) if self._is_left_out(lines[at])]
        for anchor in gone:
            lines = _without_section(lines, anchor)
        return lines

    def _without_lines(self, lines: list[str]) -> list[str]:
        """Return lines without those of what is off, and what goes on from an item of a list that is."""
        kept, goes_on = list[str](), False
        for line in lines:
            goes_on = goes_on and line.startswith("  ")
            is_row = line.startswith(("|", "- ")) and bool(self._missing(line))
            if is_row or self._is_left_out(line):
                goes_on = line.startswith("- ")
            elif not goes_on:
                kept.append(OF.sub("", line))
        return kept

    def _is_left_out(self, line: str) -> bool:
        return any(name not in self._problems for name in OF.findall(line))

    def _with_dates(self, text: str) -> str:
        """Return a text with a paragraph on dates below its heading; as it is where no date is set."""
        heading, mark, rest = text.partition("\n")
        dates = self._course.told_dates()
        return f"{heading}\n\n{dates}{mark}{rest}" if dates else text

    def _line(self, where: str, line: str) -> str:
        """Return a line with the course's numbers."""
        if found := self._missing(line):
            raise StaleText(f"{where}: {found} is worth nothing in this course: end the line with <!-- of:{found} -->")
        if bare := UNMARKED.search(line):
            raise StaleText(f"{where}: {bare[0]}: expected a comment that says whose, {bare[0]}<!-- worth:NAME -->")
        line = NUMBER.sub(lambda found: _number(self._worth[found[2]]), line)
        return WORTH.sub(lambda found: _words(self._worth[found[2]]), line)

    def _example(self, name: str) -> str:
        """Return what an example of a command may name: another problem or check for one that is off."""
        if "::" in name and name not in self._worth:
            return next(check for check in self._worth if "::" in check)
        is_off = name in operators.problems() and name not in self._problems
        return next(iter(self._problems)) if is_off else name

    def _missing(self, line: str) -> str:
        """Return a name in a line of which the course has no points."""
        names = [name for _, name in (*NUMBER.findall(line), *WORTH.findall(line))]
        return next((name for name in names if name not in self._worth), "")

    def _totals(self) -> str:
        """Return what a grade of the stubs ends with."""
        rows = [
            (one.name, f"0/{one.points:g}", "needs a GPU: not graded here" if one.name == SPEED else "to do")
            for one in self._problems.values()
            if not one.is_practice
        ]
        wide, right = (max(len(row[i]) for row in rows) for i in (0, 1))
        here, whole = self._here, self._all
        last = f"0/{here:g} gradable here, {whole - here:g} need a GPU" if here != whole else f"0/{here:g}"
        lines = [f"  {name:<{wide}}    {points:>{right}}    {told}" for name, points, told in rows]
        welcome = ["", "Welcome! Nothing is written yet, and nothing is wrong.", "  ...", f"Score: {last}", ""]
        return "\n".join([*lines, *welcome])


def _number(worth: float | str) -> str:
    return worth if isinstance(worth, str) else f"{worth:g}"


def _words(worth: float | str) -> str:
    return "Practice: no points" if isinstance(worth, str) else f"{worth:g} {'point' if worth == 1 else 'points'}"


def _without_section(lines: list[str], anchor: str) -> list[str]:
    """Return lines without a heading of this anchor and what is below it."""
    found = list(headings(lines))
    begin, depth = next(((at, depth) for at, depth, name in found if name == anchor), (len(lines), 0))
    end = next((at for at, other, _ in found if at > begin and other <= depth), len(lines))
    return lines[:begin] + lines[end:]


def _without_links(path: str, text: str, gone: set[str]) -> str:
    """Return a page's text in which links to what is gone are their words."""

    def unlinked(found: re.Match[str]) -> str:
        page, anchor = target(path, found[2])
        return found[1] if {page, f"{page}#{anchor}"} & gone else found[0]

    return LINK.sub(unlinked, text)


def target(path: str, link: str) -> tuple[str, str]:
    """Return page and anchor to which a link on a page leads."""
    page, _, anchor = link.partition("#")
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), page)) if page else path, anchor
