"""What the exceptions that beginners meet first mean: their cause, in plain words, and what to write."""

import re

GRID = "the grid, such as (triton.cdiv(n, TILE_SIZE),), says how many programs run it"
OUTSIDE = r"Cannot call @triton\.jit'd outside of the scope of a kernel"
SMALL = "handout/faq.md#why-does-d--40-fail-when-32-and-64-work"
# What stands in a message, its lines of code included, and what to add; \1 is the name that was found there.
MEANT = (
    (rf"{OUTSIDE}[\s\S]*?: (?:\w+ = )?(\w+)\(", rf"\1[grid](…) launches a kernel, and \1(…) does not: {GRID}"),
    (OUTSIDE, f"kernel[grid](…) launches a kernel, and kernel(…) does not: {GRID}"),
    (
        r"'function' object is not subscriptable[\s\S]*?(\w+)\[",
        r"\1 is Python's, no kernel: put @triton.jit above its def",
    ),
    (
        r"Did you forget to add @triton\.jit[\s\S]*? in (\w+)",
        r"put @triton.jit above the def of \1; \1[grid](…) launches it",
    ),
    (
        r"'int' object is not iterable[\s\S]*?(\w+)\[(?!None|:)",
        r"\1 cannot be indexed: memory is read by tl.load(\1 + offsets, mask=…); of a tile no element is read alone",
    ),
    (
        r"Cannot evaluate f-string[\s\S]*?print\(f.*?\{(\w+)",
        r'values are known when the kernel runs, text when it is compiled: print("\1 =", \1)',
    ),
    (
        r"arange's arguments must be of type tl\.constexpr",
        "a tile's size is known when the kernel is compiled: tl.arange(0, TILE_SIZE), with TILE_SIZE: tl.constexpr, a "
        "power of two; a mask leaves out what lies past the end",
    ),
    (
        r"for loop bounds and step must be scalars",
        "range takes numbers, such as n_keys and K_TILE_SIZE; a tile's elements are computed at once, without a loop",
    ),
    (
        r"must have equal reduction dimensions",
        "tl.dot(a, b) takes (M, K) and (K, N), as many columns of a as rows of b: is a tl.trans missing?",
    ),
    (
        r"Unsupported ptr type <.*int(32|64)>",
        "numbers are no pointers: add offsets to one, tl.load(x_ptr + offsets, mask=…); an address out of a table is "
        "cast first, .to(tl.pointer_type(tl.float32))",
    ),
    (r"Input shapes should have", f"tl.dot wants tiles of at least 16, padded with zeros: {SMALL}"),
)


def advice(message: str) -> str:
    """Return what to add to an exception's message, as a line of its own; "" if nothing is known."""
    for pattern, words in MEANT:
        if found := re.search(pattern, message):
            return f"\n  {found.expand(words)}"
    return ""
