"""What an atomic returned, and what is computed of it: arrays that know the locks and counters they tell of.

An atomic that acquires orders what comes after it only where the program looks at what it returned: that the lock was
free, that all others have counted. Who does not look goes on in any case.
"""

from typing import Any

import numpy as np

Locks = frozenset[int]  # addresses
_NONE: Locks = frozenset()


class Acquired(np.ndarray):
    """An array that depends on what atomics at the addresses `locks` returned; what is made of it does, too."""

    locks: Locks

    def __array_finalize__(self, made_of: Any) -> None:
        self.locks = getattr(made_of, "locks", _NONE)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return _call(getattr(ufunc, method), inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _call(func, args, kwargs)


def remember(value: Any, locks: Locks) -> Any:
    """The array, or the arrays of a tuple or list, with these locks; anything else as it is."""
    if isinstance(value, tuple | list):
        return type(value)(remember(item, locks) for item in value)
    if not locks or not isinstance(value, np.ndarray | np.generic):
        return value
    array = np.asarray(value).view(Acquired)
    array.locks = locks
    return array


def locks_in(value: Any) -> Locks:
    """The locks of an array, or of all arrays in a collection."""
    if type(value) is np.ndarray:
        return _NONE
    if isinstance(value, Acquired):
        return value.locks
    if isinstance(value, dict):
        value = tuple(value.values())
    return _NONE.union(*map(locks_in, value)) if isinstance(value, tuple | list) else _NONE


def plain(value: Any) -> Any:
    """The array, or the collection, without locks."""
    if type(value) is np.ndarray:
        return value
    if isinstance(value, Acquired):
        return value.view(np.ndarray)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return type(value)(map(plain, value)) if type(value) in (tuple, list) else value


def _call(function: Any, args: Any, kwargs: Any) -> Any:
    return remember(function(*plain(args), **plain(kwargs)), locks_in((args, kwargs)))
