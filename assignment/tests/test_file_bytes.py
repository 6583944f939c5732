"""Files as editors write them: line ends, byte-order marks, characters beyond ASCII.

Every process hashes, parses and shows the same text, whichever way a submission came.
"""

import zipfile

import pytest

from assignment.classroom import layouts
from assignment.judge.replies import Ok, Raised
from assignment.submission import Submission, canonical, read
from assignment.tests.pairs import FILE, IMPORTS, F, X, result_of

CODE = """
# größe: a comment, 二, and a page's end:\x0c
@triton.jit
def _double(x_ptr, größe, y_ptr, n, SIZE: tl.constexpr):
\tat = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
\tx = tl.load(x_ptr + at, mask=at < n, other=0.0)
\ttl.store(y_ptr + at, größe * x, mask=at < n)
\x0c
def weighted_sum_forward(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    _double[(triton.cdiv(x.numel(), 64),)](x, 2.0, y, x.numel(), 64)
    return y, "é\u2028\x85\x1c"[:0] or None
"""
GOOD = IMPORTS + CODE.replace(', "é\u2028\x85\x1c"[:0] or None', "  # é\u2028\x85\x1c")
SPELLINGS = {
    "as on Linux": lambda text: text.encode(),
    "Windows": lambda text: text.replace("\n", "\r\n").encode(),
    "old Macs": lambda text: text.replace("\n", "\r").encode(),
    "mixed": lambda text: text.replace("\n", "\r\n", 9).encode(),
    "byte-order mark": lambda text: text.encode("utf-8-sig"),
    "Windows and a mark": lambda text: text.replace("\n", "\r\n").encode("utf-8-sig"),
    "no line end at the end": lambda text: text.rstrip("\n").encode(),
    "a declared encoding": lambda text: ("# -*- coding: utf-8 -*-\n" + text).encode(),
}
spellings = pytest.mark.parametrize("spelled", SPELLINGS.values(), ids=SPELLINGS)


def hold(at, content):
    at.pair.restart()
    at.stage.replace(Submission({FILE: content}))


@spellings
def test_a_right_kernel_is_played(at, spelled):
    hold(at, spelled(GOOD))
    assert (result_of(at, X) == 2 * X).all()


@spellings
@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (("größe * x", "größe * missing"), "größe * missing"),
        (("return y", "return y.absent"), "return y.absent"),
    ],
    ids=["in the kernel", "in host code"],
)
def test_messages_have_the_line_that_an_editor_shows(at, spelled, edit, said):
    text = GOOD.replace(*edit)
    hold(at, content := spelled(text))
    reply, _ = at.ask(F, X)
    assert not isinstance(reply, Ok)
    shown = content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    (line,) = (number for number, text in enumerate(shown, 1) if said in text)
    assert f"{FILE}:{line} in " in reply.message
    assert said in reply.message


@spellings
def test_folder_zip_and_class_agree(tmp_path, spelled):
    content = spelled(GOOD)
    folder = tmp_path / "class" / "ada"
    (folder / FILE).parent.mkdir(parents=True)
    (folder / FILE).write_bytes(content)
    with zipfile.ZipFile(tmp_path / "class" / "bo.zip", "w") as archive:
        archive.writestr(FILE, content)
    class_of_two = [one.read() for one in layouts.found(tmp_path / "class")]
    came = [read(folder), read(tmp_path / "class" / "bo.zip"), *class_of_two]
    assert len(came) == 4
    assert {one.sha256 for one in came} == {Submission({FILE: canonical(content)}).sha256}
    came[0].stage(tmp_path / "staged")
    assert (tmp_path / "staged" / FILE).read_bytes().decode() == came[0].sources[FILE]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8-sig", "UTF8"])
def test_an_encoding_that_changes_nothing_is_no_matter(at, encoding):
    text = f"# coding: {encoding}\n" + GOOD.encode("ascii", "ignore").decode().replace("gre", "scale")
    hold(at, text.encode())
    assert (result_of(at, X) == 2 * X).all()


def test_an_encoding_that_changes_the_text_is_told(at):
    hold(at, ("# coding: latin-1\n" + GOOD.replace("größe", "scale")).encode())
    reply, _ = at.ask(F, X)
    assert not isinstance(reply, Ok | Raised)
    assert "says that it is in latin-1: save it as UTF-8" in reply.message
