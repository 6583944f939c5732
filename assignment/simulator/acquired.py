"""Arrays that remember which locks and counters their values come from.

An atomic that acquires orders later accesses only if the program looks at the value that it
returned: that the lock was free, or that all others have counted. A program that does not look
continues in any case.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

Locks = frozenset[int]  # addresses
_NONE: Locks = frozenset()


class Acquired(np.ndarray):
    """An array computed from what atomics at the addresses `locks` returned."""

    locks: Locks

    def __array_finalize__(self, made_of: np.ndarray | None) -> None:
        self.locks = getattr(made_of, "locks", _NONE)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return _call(getattr(ufunc, method), inputs, kwargs)

    def __array_function__(
        self, func: Any, types: Iterable[type], args: Iterable[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        return _call(func, args, kwargs)


def remember(value: Any, locks: Locks) -> Any:
    """Return the array, or each array of a collection, with these locks."""
    if isinstance(value, tuple | list):
        return type(value)(remember(item, locks) for item in value)
    if not locks or not isinstance(value, np.ndarray | np.generic):
        return value
    array = np.asarray(value).view(Acquired)
    array.locks = locks
    return array


def locks_in(value: Any) -> Locks:
    """Return the locks of an array, or of all arrays in a collection."""
    if type(value) is np.ndarray:
        return _NONE
    if isinstance(value, Acquired):
        return value.locks
    if isinstance(value, dict):
        value = tuple(value.values())
    return _NONE.union(*map(locks_in, value)) if isinstance(value, tuple | list) else _NONE


def plain(value: Any) -> Any:
    """Return the array, or the collection, without locks."""
    if type(value) is np.ndarray:
        return value
    if isinstance(value, Acquired):
        return value.view(np.ndarray)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return type(value)(map(plain, value)) if type(value) in (tuple, list) else value


def _call(function: Any, args: Iterable[Any], kwargs: Mapping[str, Any]) -> Any:
    return remember(function(*plain(args), **plain(kwargs)), locks_in((args, kwargs)))
