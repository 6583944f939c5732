"""Fingerprints of Python code that survive other names, another layout and another order of functions.

A submission's text becomes tokens: what its author names is one token whatever the name, what Python and its libraries
name stays; numbers, strings, comments, annotations, commas and parentheses say nothing. Every GRAM tokens in a row are
a number, of which each WINDOW in a row contribute their smallest (winnowing: Schleimer, Wilkerson and Aiken 2003): any
two texts that share GRAM + WINDOW − 1 tokens in a row share a fingerprint.
"""

import builtins
import contextlib
import functools
import io
import keyword
import tokenize
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from assignment.judge.pool import FUNCTIONS

GRAM, WINDOW = 14, 5  # tokens; grams
LIBRARIES = {"tl", "triton", "torch", "math", "F", "einops"}
KEPT = {*keyword.kwlist, *dir(builtins), *LIBRARIES, *FUNCTIONS}
SILENT = set("(),")  # where layout and taste differ
NAME, NUMBER = "n", "0"
WITHOUT_TEXT = {
    tokenize.COMMENT, tokenize.STRING, tokenize.NL, tokenize.NEWLINE,
    tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip
BEGINS = ("@", "def", "class", "async")


@dataclass(frozen=True)
class Token:
    """A token as it is compared, and the line that it is on."""

    text: str
    file: str
    line: int


@dataclass(frozen=True)
class Prints:
    """The fingerprints of a submission: each with the first and last token of every place that it stands at."""

    tokens: tuple[Token, ...]
    places: Mapping[int, tuple[tuple[int, int], ...]]


def prints_of(sources: Mapping[str, str]) -> Prints:
    """Return the fingerprints of files by their path; grams do not reach from one definition into another."""
    tokens: list[Token] = []
    places: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for path, text in sorted(sources.items()):
        first = len(tokens)
        found, chosen = _of_file(path, text)
        tokens += found
        for start, key in chosen:
            places[key].append((first + start, first + start + GRAM - 1))
    return Prints(tuple(tokens), {key: tuple(found) for key, found in places.items()})


@functools.lru_cache(maxsize=4096)  # most of a class has some files in common: stubs
def _of_file(path: str, text: str) -> tuple[list[Token], list[tuple[int, int]]]:
    """Return a file's tokens, and where a fingerprint begins, with its value."""
    tokens: list[Token] = []
    chosen: list[tuple[int, int]] = []
    for part in _parts(path, text):
        chosen += [(len(tokens) + start, key) for start, key in _winnowed([token.text for token in part])]
        tokens += part
    return tokens, chosen


def _parts(path: str, text: str) -> Iterator[list[Token]]:
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
            part.append(Token(_compared(token, before), path, token.start[0]))
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
