"""A student's name in tables and as part of a file's, made of the key by which a platform or a folder knows them.

The key is never shortened to tell students apart: a name that does not say all of it ends with a digest of the key, and
so do names that differ in case alone, which some file systems take for one.
"""

import hashlib
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

from assignment import text

MAX_NAME, MAX_BYTES = 60, 150  # of a name; a file's has more behind it, and 255 bytes in all
KEPT = " .@+-_,'()"  # beside letters, their marks and digits of any script
# What ends like this may be an attempt, or a digest, of somebody else.
TAKEN = re.compile(r"\.\d+$|-[0-9a-f]{8}$")


def safe(key: str) -> str:
    """Return a name that is made of this key alone: never empty, hidden, long or a path, and other keys have others."""
    composed = unicodedata.normalize("NFC", key)
    kept = [c if c in KEPT or unicodedata.category(c)[0] in "LMN" else "_" for c in composed]
    plain = re.sub(r" +", " ", re.sub(r"_{2,}", "_", "".join(kept)))
    plain = plain.lstrip(" ._-'").rstrip(" ._-")
    is_whole = plain == key and len(plain) <= MAX_NAME and len(plain.encode()) <= MAX_BYTES
    return plain if plain and is_whole and not TAKEN.search(plain) else with_digest(plain, key)


def with_digest(name: str, key: str) -> str:
    """Return a name that only this key has."""
    begin = name[: MAX_NAME - 9].encode()[: MAX_BYTES - 9].decode(errors="ignore").rstrip(" ._-")
    return f"{begin}-{_digest(key)}".lstrip("-")


def bounded(said: str, most: int) -> str:
    """Return a text of so many characters at most, which no other text has."""
    return said if len(said) <= most else f"{said[: most - 9]}-{_digest(said)}"


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:8]


def of_keys(keys: Iterable[str]) -> dict[str, str]:
    """Return the name of each key, whatever their order; no two are alike, not even where case is none."""
    keys = sorted(set(keys))
    own = {key: safe(key) for key in keys}
    taken = Counter(map(_folded, own.values()))
    return {key: name if taken[_folded(name)] == 1 else with_digest(name, key) for key, name in own.items()}


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name.casefold())


def shown(name: str) -> str:
    """Return a file's name as text: what is no text in it is written as escapes."""
    return os.fsencode(name).decode(errors="backslashreplace")


def some(told: Sequence[str], most: int = 5) -> str:
    """Return the first few names in one line, and how many more there are."""
    return text.line(f"{', '.join(told[:most])}{f' and {len(told) - most} more' if len(told) > most else ''}")


def look_alike(keys: Iterable[str]) -> list[list[str]]:
    """Return the keys that a person may take for one: they differ in case, accents, spaces or signs alone."""
    groups: dict[str, list[str]] = {}
    for key in sorted(set(keys)):
        letters = unicodedata.normalize("NFKD", shown(key)).casefold()
        groups.setdefault("".join(c for c in letters if c.isalnum()) or key, []).append(key)
    return [group for group in groups.values() if len(group) > 1]
