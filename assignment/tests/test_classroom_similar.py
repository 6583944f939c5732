"""Alike submissions: copies in other clothes are found, and nobody who wrote the same algorithm alone is."""

import ast
import itertools
import json
import random
import re
import time

import pytest

from assignment.bank import bugs, corpus
from assignment.bank.run import made
from assignment.bank.run.disguise import disguised
from assignment.classroom import __main__ as classroom
from assignment.classroom import alike, pages, prints, similar
from assignment.classroom.alike import SubmittedWork
from assignment.classroom.similar import ROOT
from assignment.submission import PACKAGE, Submission, pack
from assignment.tests import class_made

KERNEL = '''
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Say something."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # where
    x = tl.load(x_ptr + rows, mask=rows < n, other=0.0)
    tl.store(y_ptr + rows, tl.exp2(x - tl.max(x, 0)), mask=rows < n)


def helper(n):
    return triton.cdiv(n, 128) + 1


def rmsnorm(x, weight, eps=1e-5):
    y = x.new_empty(x.shape)
    kernel[(helper(x.numel()),)](x, y, x.numel(), BLOCK=128)
    return y
'''


WORK = (ROOT / "assignment/reference/cs336_kernels/rmsnorm.py").read_text()


@pytest.fixture(scope="module")
def variants():
    """What right submissions do not have from the base, and what they have: by name."""
    entries = [entry for entry in corpus.entries() if entry.kind == corpus.VARIANT and not made._is_apart(entry)]
    return {entry.name: entry.submission for entry in entries}


@pytest.fixture(scope="module")
def known():
    handout = similar.texts_of([ROOT / PACKAGE, ROOT / "handout", ROOT / "handout.md"])
    return {*prints.prints_of(handout).places} | {*prints.prints_of(Submission(bugs.base()).sources).places}


def works(submissions):
    return [SubmittedWork(name, frozenset([name]), one.sources) for name, one in submissions.items()]


# a disguise


def test_a_disguise_changes_names_order_and_comments_and_nothing_else():
    files = {f"{PACKAGE}/rmsnorm.py": KERNEL.encode()}
    text = disguised(files, random.Random(1))[f"{PACKAGE}/rmsnorm.py"].decode()
    assert not re.search(r"helper|rows|x_ptr|\bBLOCK\b|\bkernel\b|where|something", text)
    assert "def rmsnorm(x, weight, eps=1e-05):" in text
    assert "mask=" in text
    assert "other=0.0" in text
    assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(KERNEL))
    assert prints.prints_of({"a.py": text}).places.keys() == prints.prints_of({"a.py": KERNEL}).places.keys()


def test_a_disguised_package_still_has_its_functions():
    files = disguised(bugs.base(), random.Random(2))
    assert files.keys() == bugs.base().keys()
    for path, content in files.items():
        before = {name for name in corpus.defined(bugs.base()[path]) if name in corpus.FUNCTIONS}
        assert before <= set(corpus.defined(content))


# what is alike


SAME_LINES = 6  # one after the other, of two variants: one of them was written from the other
ENOUGH_LINES = 20  # runs of them that only one variant has: a few edits of what all were given tell nothing


def runs_of(submission, given):
    """Return each run of so many lines that hold something, but those that all have been given."""
    lines = [line.strip() for text in submission.sources.values() for line in text.splitlines() if line.strip()]
    own = [line for line in lines if line not in given]
    return {tuple(own[i : i + SAME_LINES]) for i in range(len(own) - SAME_LINES + 1)}


@pytest.mark.slow
def test_copies_are_found_and_variants_are_not_accused(variants, known, monkeypatch):
    """Every variant beside a disguised copy of every third that has enough of its own; some were written from others"""
    given = {line.strip() for text in Submission(bugs.base()).sources.values() for line in text.splitlines()}
    runs = {name: runs_of(submission, given) for name, submission in variants.items()}
    copied = [name for name in variants if len(runs[name]) >= ENOUGH_LINES][::3]
    copies = {f"copy of {name}": Submission(disguised(variants[name].files, random.Random(name))) for name in copied}
    expected = {frozenset((name, f"copy of {name}")) for name in copied}

    def is_related(pair):
        left, right = (name.removeprefix("copy of ") for name in (pair.left, pair.right))
        return left == right or bool(runs[left] & runs[right])

    compared = works(variants | copies)
    pairs = {frozenset((pair.left, pair.right)) for pair in alike.compared(compared, known).pairs}
    assert expected <= pairs
    monkeypatch.setattr(alike, "threshold_of", lambda alike: 0.0)
    unrelated = [pair for pair in alike.compared(compared, known).pairs if not is_related(pair)]
    assert len(unrelated) > 1000
    assert max(pair.alike for pair in unrelated) < 0.4


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("rows", "offsets").replace("x_ptr", "source"),
        lambda text: text.replace("  # where", "\n    # in which program?\n"),
        lambda text: text.replace("128", "256"),
        lambda text: text.replace("mask=rows < n, other=0.0)", "\n        mask=(rows < n),\n        other=0.0,\n    )"),
    ],
    ids=["names", "comments", "numbers", "layout"],
)
def test_fingerprints_survive(change):
    changed = change(KERNEL)
    assert changed != KERNEL
    before, after = (prints.prints_of({"a.py": text}).places.keys() for text in (KERNEL, changed))
    assert before == after


def test_fingerprints_tell_of_the_libraries_names():
    """tl.exp2 and tl.sqrt are not the same"""
    before, after = (
        prints.prints_of({"a.py": text}).places.keys() for text in (KERNEL, KERNEL.replace("exp2", "sqrt"))
    )
    assert before != after


def long(seed, n=60):
    rng = random.Random(seed)
    lines = (f"    a = tl.{rng.choice(['exp', 'sum', 'load', 'dot'])}(b) {rng.choice('+-*/')} {rng.choice('+-')}c"
             for _ in range(n))  # fmt: skip
    return "def f(b, c):\n" + "\n".join(lines) + "\n"


def class_of(*texts, owners=None):
    return [
        SubmittedWork(f"s{i}", frozenset([owners[i] if owners else f"s{i}"]), {f"{PACKAGE}/a.py": text})
        for i, text in enumerate(texts)
    ]


def test_what_all_have_been_given_does_not_count():
    shared = long(1)
    texts = [shared + long(i) for i in range(2, 5)]
    assert not alike.compared(class_of(*texts), {*prints.prints_of({"a.py": shared}).places}).pairs


def test_two_submissions_of_one_student_are_not_compared():
    texts = [long(1), long(1), long(2)]
    assert [pair.alike for pair in alike.compared(class_of(*texts), set()).pairs] == [1.0]
    assert not alike.compared(class_of(*texts, owners=["ada", "ada", "bo"]), set()).pairs


@pytest.mark.parametrize("n", [2, 3, 10])
def test_a_small_class(n):
    """Two of whom share all"""
    found = alike.compared(class_of(long(0), *map(long, range(n - 1))), set())
    assert [(pair.left, pair.right) for pair in found.pairs] == [("s0", "s1")]


def test_one_file_of_several_is_enough():
    mine, other = ({f"{PACKAGE}/{name}.py": long(seed) for name, seed in files} for files in
                   ([("a", 1), ("b", 2), ("c", 3)], [("d", 1), ("e", 4), ("f", 5)]))  # fmt: skip
    (pair,) = alike.compared(
        [SubmittedWork("x", frozenset("x"), mine), SubmittedWork("y", frozenset("y"), other)], set()
    ).pairs
    assert pair.where.endswith(("a.py", "d.py"))
    assert pair.passages[0].left == (f"{PACKAGE}/a.py", 1, 61)
    assert pair.passages[0].right == (f"{PACKAGE}/d.py", 1, 61)


@pytest.mark.parametrize("text", ["", "def f(:", "x = '''", "\0", "é = 1\n" * 3, "(" * 500, "\t x\n  y\n"])
def test_what_is_no_python_is_compared_as_far_as_it_goes(text):
    assert not alike.compared(class_of(text, text), set()).pairs


def test_the_threshold_follows_the_class():
    assert alike.threshold_of([0.01] * 99 + [1.0]) == alike.FLOOR
    assert alike.threshold_of([i / 200 for i in range(100)]) > alike.FLOOR
    assert alike.threshold_of([0.9] * 50 + [0.0] * 50) == alike.CEILING


def page_of(tmp_path, class_, found=None, known=frozenset()):
    found = found or alike.compared(class_, set())
    shown = similar.shown(found, alike.identical(class_, known), {work.name: work for work in class_})
    pages.write(tmp_path / "similar.html", "similar.html", **shown)
    return (tmp_path / "similar.html").read_text()


def test_a_ring_is_one_cluster():
    """Five who share one file, and two others: two clusters, not eleven pairs"""
    texts = [long(1)] * 5 + [long(2)] * 2 + [long(i) for i in range(3, 40)]
    found = alike.compared(class_of(*texts), set())
    assert len(found.pairs) == 11
    one, two = sorted(alike.clusters(found.pairs), key=lambda cluster: cluster.names)
    assert (one.names, len(one.pairs)) == (("s0", "s1", "s2", "s3", "s4"), 4)
    assert (two.names, len(two.pairs)) == (("s5", "s6"), 1)


def test_a_chain_is_joined_by_its_strongest_pairs():
    made = [alike.AlikePair(x, ends[0], ends[1], "all files") for x, ends in
            [(0.9, "ab"), (0.6, "bc"), (0.8, "cd"), (0.7, "ac"), (0.5, "ad"), (0.95, "xy")]]  # fmt: skip
    first, second = alike.clusters(made)
    assert (first.names, second.names) == (("x", "y"), ("a", "b", "c", "d"))
    assert [pair.alike for pair in second.pairs] == [0.9, 0.8, 0.7]


def test_the_same_file_is_shown_whatever_the_class_shares(tmp_path):
    """Byte for byte, also where all have it, but not what all have been given, nor one student's own"""
    class_ = class_of(*["x = 1\n"] * 3, long(1), long(1), owners=["ada", "bo", "cy", "di", "di"])
    class_ += class_of(long(5), long(5), owners=["eve", "flo"])
    class_ = [SubmittedWork(f"w{i}", one.owners, one.sources) for i, one in enumerate(class_)]
    assert [one.names for one in alike.identical(class_, {long(5)})] == [("w0", "w1", "w2")]
    assert [one.lines for one in alike.identical(class_, set())] == [61, 1]
    page = page_of(tmp_path, class_, known={long(5)})
    assert "w0, w1, w2" in page
    assert "byte for byte" in page


def test_the_page_holds_what_students_wrote_as_text(tmp_path):
    evil = long(1).replace("b, c", "b, c, d='</pre><script>alert(1)</script>'")
    class_ = class_of(evil, evil, long(2))
    class_[0] = SubmittedWork("<img src=x onerror=alert(1)>", frozenset("x"), class_[0].sources)
    found = alike.compared(class_, set())
    page = page_of(tmp_path, class_, found)
    assert "&lt;img src=x" in page
    assert page.count("<script") == 1  # our own, which the policy names
    assert not re.search(r"<img|https?:|src=[\"']|@import|url\(", page.replace("&lt;", ""))
    assert "default-src &#39;none&#39;" in page
    assert "cheat" not in page.lower()


def test_the_command_reads_what_a_class_has_kept(tmp_path, capsys):
    for folder in ("reports", "sources"):
        (tmp_path / folder).mkdir()
    people = {"ada": "a@x", "ada.2": "a@x", "bo": "b@x", "cy": "c@x"}
    for seed, (name, email) in enumerate(people.items()):
        text = long(0 if name != "cy" else seed)
        about = {"student": name.partition(".")[0], "people": [{"email": email}]}
        (tmp_path / "reports" / f"{name}.json").write_text(json.dumps({"classroom": about}))
        submission = Submission({f"{PACKAGE}/a.py": text.encode()})
        (tmp_path / "sources" / f"{name}.zip").write_bytes(pack(submission))
    (tmp_path / "reports" / "di.json").write_text(json.dumps({"failed": "no zip", "classroom": {}}))
    assert classroom.main(["similar", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "3 students" in out
    assert "ada, ada.2, bo" in out
    page = (tmp_path / "similar.html").read_text()
    assert "ada.2 and bo" in page
    assert "ada and bo" in page
    assert "ada and ada.2" not in page


OPERATORS = ("+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "<<", ">>")
HOSTILE = {
    "one line of 200 operators, repeated": "y = " + " ".join(f"x {OPERATORS[i * i % 13]}" for i in range(200)) + " x\n",
    "one operator": "y = " + "x + " * 200 + "x\n",
    "tokens of one letter": "a;" * 200 + "\n",
    "a triple quote": "'''\n",
    "parentheses": "(" * 50 + "\n",
}


@pytest.mark.parametrize("line", HOSTILE.values(), ids=HOSTILE)
def test_a_megabyte_of_repetitions_takes_seconds(line):
    """And a copy that stands beside it is found: short files are read first, whatever their names"""
    megabyte = line * ((1 << 20) // len(line) - 60)
    hidden = {f"{PACKAGE}/a.py": megabyte, f"{PACKAGE}/rmsnorm.py": WORK}
    began = time.process_time()
    found = alike.compared([SubmittedWork(name, frozenset([name]), hidden) for name in "ab"], set())
    assert time.process_time() - began < 20
    assert found.not_whole == ("a", "b")
    assert found.pairs[0].alike == 1.0
    copied = {f"{PACKAGE}/rmsnorm.py": WORK}
    beside = alike.compared(
        [SubmittedWork("a", frozenset("a"), hidden), SubmittedWork("b", frozenset("b"), copied)], set()
    )
    assert [(pair.left, pair.right, pair.alike) for pair in beside.pairs] == [("a", "b", 1.0)]


def test_a_file_that_is_repeated_hides_nothing():
    """Of a fingerprint at many places the first ones count"""
    repeated = {f"{PACKAGE}/rmsnorm.py": WORK * 9}
    found = alike.compared(
        [
            SubmittedWork("a", frozenset("a"), repeated),
            SubmittedWork("b", frozenset("b"), {f"{PACKAGE}/rmsnorm.py": WORK}),
        ],
        set(),
    )
    assert found.pairs[0].alike > 0.9


def test_what_takes_longer_than_it_may_ends_with_a_sentence(tmp_path, capsys, monkeypatch):
    for name in ("ada", "bo"):
        class_made.keep(tmp_path, name, class_made.report(class_made.submission()), class_made.submission())
    monkeypatch.setattr(similar.alike, "compared", lambda *_: time.sleep(60))
    assert classroom.main(["similar", str(tmp_path), "--limit", "0.2"]) == classroom.UNUSABLE
    assert "not compared within 0.2 s; give more with --limit" in capsys.readouterr().err
    monkeypatch.setattr(similar.alike, "compared", lambda *_: bytearray(8 << 30))
    assert classroom.main(["similar", str(tmp_path)]) == classroom.UNUSABLE
    assert "not compared within 3 GiB of memory" in capsys.readouterr().err


def test_nothing_to_compare_is_said(tmp_path, capsys):
    assert classroom.main(["similar", str(tmp_path)]) == classroom.UNUSABLE
    assert "sources/" in capsys.readouterr().err


def test_a_page_without_a_pair(tmp_path):
    page = page_of(tmp_path, class_of(long(1), long(2)))
    assert "Nothing to look at." in page
    assert "<h2" not in page


# a made class


def test_a_made_class_is_what_its_table_says(tmp_path):
    students = made.drawn(60, random.Random(7))
    assert len(students) == 60
    assert len({one.name for one in students}) == 60
    kinds = {one.kind for one in students}
    assert kinds == {*made.OF_300}
    by_name = {one.name: one for one in students}
    for one in students:
        assert one.kind != made.COPY or by_name[one.copied].parts == one.parts
    made.write(students, tmp_path, random.Random(1))
    assert len([*(tmp_path / "submissions").iterdir()]) == 60
    assert len((tmp_path / "truth.csv").read_bytes().split(b"\r\n")) > 60


def test_a_class_is_drawn_by_its_seed():
    first, again, other = (made.drawn(40, random.Random(seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_a_mixture_has_both_of_its_parts():
    for one in itertools.islice((s for s in made.drawn(120, random.Random(3)) if s.kind == made.MIXTURE), 12):
        base, (bug, other) = bugs.base(), one.parts
        assert bug.startswith("bugs/")
        assert not other.startswith("bugs/")
        changed = {path for path, content in one.files.items() if base.get(path) != content}
        assert len(changed) >= 2


def test_the_class_s_command_makes_one_and_imports_nothing_of_it(tmp_path):
    """What tests the class is no part of it"""
    assert classroom.main(["made", "--to", str(tmp_path / "made"), "--students", "8", "--seed", "1"]) == 0
    assert (tmp_path / "made" / "truth.csv").exists()
    for path in (ROOT / "assignment" / "classroom").rglob("*.py"):
        assert not re.search(r"^\s*(from|import) assignment\.bank", path.read_text(), re.MULTILINE), path
