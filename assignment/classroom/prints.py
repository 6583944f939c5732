"""Fingerprints of Python code that survive other names, another layout and another order of functions.

A submission's text becomes tokens: what its author names is one token whatever the name, what Python and its libraries
name stays; numbers, strings, comments, annotations, commas and parentheses say nothing. Every GRAM tokens in a row are
a number, of which each WINDOW in a row contribute their smallest (winnowing: Schleimer, Wilkerson and Aiken 2003): any
two texts that share GRAM + WINDOW − 1 tokens in a row share a fingerprint. Whoever hands in a megabyte of repetitions
costs little more than others: MOST_READ of a submission is read, and what repeats keeps its first places in a file.
"""

import bisect
import builtins
import contextlib
import functools
import io
import keyword
import tokenize
import zlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from assignment.judge.pool import FUNCTIONS

GRAM, WINDOW = 14, 5  # tokens; grams
MOST_READ = 256 << 10  # characters of a submission; usual: 80,000
MOST_PLACES = 4  # of a fingerprint in a file
LIBRARIES = {"tl", "triton", "torch", "math", "F", "einops"}
KEPT = {*keyword.kwlist, *dir(builtins), *LIBRARIES, *FUNCTIONS}
SILENT = set("(),")  # where layout and taste differ
NAME, NUMBER = "n", "0"
WITHOUT_TEXT = {
    tokenize.COMMENT, tokenize.STRING, tokenize.NL, tokenize.NEWLINE,
    tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip
BEGINS = ("@", "def", "class", "async")


Token = tuple[str, int]  # as it is compared, and the line that it is on


@dataclass(frozen=True)
class Prints:
    """The fingerprints of a submission: each with the first and last token of the places that it stands at.

    Attributes:
        files: the first token of each, and its path.
        lines: of each token.
        is_whole: whether all of it was read.
    """

    files: tuple[tuple[int, str], ...]
    lines: Sequence[int]
    places: Mapping[int, tuple[tuple[int, int], ...]]
    is_whole: bool

    def file(self, token: int) -> str:
        """Return the path of the file that a token stands in."""
        return self.files[bisect.bisect_right(self.files, token, key=itemgetter(0)) - 1][1]


def prints_of(sources: Mapping[str, str], most: int = MOST_READ) -> Prints:
    """Return the fingerprints of files by their path, of so many characters at most, those of short files first.

    Grams do not reach from one definition into another.
    """
    files, lines, room = list[tuple[int, str]](), array("I"), most
    places: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for path, text in sorted(sources.items(), key=lambda file: (len(file[1]), file[0])):
        first = len(lines)
        found, chosen = _of_file(text[:room])
        room -= len(text[:room])
        files.append((first, path))
        lines += found
        for start, key in chosen:
            places[key].append((first + start, first + start + GRAM - 1))
    is_whole = sum(map(len, sources.values())) <= most
    return Prints(tuple(files), lines, {key: tuple(found) for key, found in places.items()}, is_whole)


@functools.lru_cache(maxsize=64)  # most of a class has some files in common: stubs
def _of_file(text: str) -> tuple["array[int]", list[tuple[int, int]]]:
    """Return the lines of a file's tokens, and where a fingerprint begins, with its value."""
    lines, chosen, times = array("I"), list[tuple[int, int]](), Counter[int]()
    for part in _parts(text):
        for start, key in _winnowed([word for word, _ in part]):
            times[key] += 1
            if times[key] <= MOST_PLACES:
                chosen.append((len(lines) + start, key))
        lines.extend(line for _, line in part)
    return lines, chosen


def _parts(text: str) -> Iterator[list[Token]]:
    """Yield the tokens of each definition at the top level, and of what stands between, up to what cannot be read."""
    part: list[Token] = []
    before, in_import, begins = ".", False, True
    with contextlib.suppress(tokenize.TokenError, SyntaxError, ValueError):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if begins and token.start[1] == 0 and token.string in BEGINS:
                yield part
                part = []
            if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.DEDENT):
                begins = token.type == tokenize.NEWLINE
            in_import = (in_import or token.string in ("import", "from")) and token.type != tokenize.NEWLINE
            if in_import or token.type in WITHOUT_TEXT or token.string in SILENT:
                continue
            part.append((_compared(token, before), token.start[0]))
            before = token.string
    yield part


def _compared(token: tokenize.TokenInfo, before: str) -> str:
    if token.type == tokenize.NUMBER:
        return NUMBER
    if token.type != tokenize.NAME or token.string in KEPT or before == ".":
        return token.string
    return NAME


def _winnowed(words: list[str]) -> Iterator[tuple[int, int]]:
    """Yield where the grams begin that stand for a text, and their values."""
    numbers = [zlib.crc32(word.encode(errors="replace")) for word in words]
    hashes = [hash(tuple(numbers[i : i + GRAM])) for i in range(len(words) - GRAM + 1)]  # of numbers: always the same
    last = -1
    for i in range(len(hashes) - WINDOW + 1):
        least = min(hashes[i : i + WINDOW])
        chosen = max(j for j in range(i, i + WINDOW) if hashes[j] == least)
        if chosen != last:
            yield chosen, least
            last = chosen
