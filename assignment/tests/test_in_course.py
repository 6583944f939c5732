"""The handout and README follow the course: its points, its name, and what it leaves out."""

import ast
import os
import re
import subprocess

import pytest

from assignment import course, release
from assignment.commands.handout import COMMENT, headings
from assignment.course import OFF, PRACTICE, Course
from assignment.handout import in_course
from assignment.handout.in_course import LINK, PAGE, StaleText, Texts, pages, target
from assignment.release import ROOT, is_staff_only, without_staff_blocks
from assignment.verdict import checks
from tests import operators

PATHS = [path.relative_to(ROOT).as_posix() for path in (*ROOT.glob("*.md"), *ROOT.glob("handout/*.md"))]
TEXTS = {
    path: without_staff_blocks((ROOT / path).read_bytes(), path).decode()
    for path in PATHS
    if PAGE.fullmatch(path) and not is_staff_only(path)
}
GRADED = [name for name, problem in checks.problems().items() if not problem.is_practice]


def written(points: dict[str, float | str], texts=TEXTS, **more) -> dict[str, str]:
    """Return the pages of another course."""
    other = Course(points=points, **more)
    return Texts(other, *checks.in_course(other, checks.in_tests())).written(texts)


def test_numbers_are_those_of_the_course():
    """Of this one, in the repository's own pages; a comment says where each comes from"""
    comments = re.compile(r" *<!-- of:\S+ -->|<!-- (?:BEGIN|END) TOTALS -->\n|<!--.*?-->")
    assert pages(TEXTS) == {path: comments.sub("", text) for path, text in TEXTS.items()}


def without(*names: str) -> dict[str, float | str]:
    return dict.fromkeys(names, OFF)


COURSES: list[dict[str, float | str]] = [
    {"weighted_sum": 6.5, "rmsnorm": 23.5},
    {"softmax": 10.5, "vector_add": 1.5, "speed": 0.0},
    {"rmsnorm": PRACTICE, "layernorm": 20.5, "speed": 10.0},
    *map(without, checks.problems()),
    without(*(name for name in GRADED if name.startswith("flash"))),
]


@pytest.mark.parametrize("points", COURSES, ids=[" ".join(map(str, one.items())) for one in COURSES])
def test_pages_follow_another_course(points):
    """No number is left over, no link leads to what is gone, and what is off has neither row nor section"""
    made = written(points)
    for path, text in made.items():
        assert not re.search(r"<!-- (?:points|worth|of|title)", text)
        for _, link in LINK.findall(text):
            page, anchor = target(path, link)
            assert page not in TEXTS or is_there(made, page, anchor), f"{path}: {link}"
    table = made["handout.md"].partition("## The order of the work")[2].partition("\n\nPractice")[0]
    found, _ = checks.in_course(Course(points=points), checks.in_tests())
    for name in (name for name in points if name != checks.SPEED):
        page, _, anchor = checks.problems()[name].section.partition("#")
        assert is_there(made, page, anchor) == (name in found)
        worth = [row.split(" | ")[-1] for row in table.splitlines() if f"]({page}{'#' * bool(anchor)}{anchor})" in row]
        assert worth == (
            [] if name not in found else ["practice |" if found[name].is_practice else f"{points[name]} |"]
        )


def is_there(made: dict[str, str], page: str, anchor: str) -> bool:
    return page in made and (not anchor or anchor in {name for _, _, name in headings(made[page].splitlines())})


def test_what_is_graded_is_told_in_its_chapter_and_at_the_start():
    made = written(
        {"softmax": 12.5, "weighted_sum": 6.0}, title="Kernels", institution="ETH", repository="https://a.example/b"
    )
    assert "*12.5 points. Write `softmax_forward`" in made["handout/softmax.md"]
    assert "*6 points: `weighted_sum_forward`" in made["handout/weighted_sum.md"]
    assert re.search(r"^\| `softmax_forward` \| [\d.]+ \| softmax_forward reads and", made["handout/grading.md"], re.M)
    assert made["README.md"].startswith("# Kernels, ETH\n")
    assert "RELEASE is https://a.example/b, or `origin`" in made["README.md"]
    here = re.search(r"([\d.]+) of the ([\d.]+) points can be earned this way", made["README.md"])
    assert here
    assert re.search(r"^  softmax +0/12.5    to do$", made["README.md"], re.MULTILINE)
    assert f"Score: 0/{here[1]} gradable here, {float(here[2]) - float(here[1]):g} need a GPU" in made["README.md"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("It is worth 5 points.", "a.md:3: 5 points: expected a comment that says whose, 5 points<!-- worth:NAME -->"),
        ("5 points<!-- worth:rmsnrm --> more", "a.md:3: rmsnrm is worth nothing in this course"),
        (
            "5<!-- points:flash_backward_pytorch --> more",
            "a.md:3: flash_backward_pytorch is worth nothing in this course",
        ),
    ],
)
def test_what_cannot_be_made_to_agree_is_told_with_its_line(line, says):
    with pytest.raises(StaleText, match=re.escape(says)):
        written({"flash_backward_pytorch": OFF}, {"a.md": f"# A\n\n{line}\n"})


def test_a_graded_problem_has_a_row():
    text = TEXTS["handout.md"].replace("points:softmax", "points:vector_add")
    with pytest.raises(
        StaleText, match=r"handout\.md: softmax is graded, .* add \| … \| … \| 5<!-- points:softmax --> \|"
    ):
        written({"softmax": 5.0}, {"handout.md": text})


def test_what_is_off_goes_with_its_items_and_sections():
    text = "# A\n\n- one<!-- of:rmsnorm -->\n  goes on\n- two\n\n## B<!-- of:rmsnorm -->\n\nb\n\n## C\n"
    assert written({"rmsnorm": OFF}, {"a.md": text})["a.md"] == "# A\n\n- two\n\n## C\n"
    assert written({}, {"a.md": text})["a.md"] == re.sub("<!--.*?-->", "", text)
    example = "```text\nagain: uv run grade.py --only rmsnorm\n```\n```sh\nuv run grade.py --only rmsnorm\n```\n"
    assert written({"rmsnorm": OFF}, {"a.md": example})["a.md"] == example.replace(
        "sh\nuv run grade.py --only rmsnorm", "sh\nuv run grade.py --only weighted_sum"
    )


def test_a_title_is_text():
    course_ = {"title": "Kernels <b> & *co*", "term": "a_b"}
    assert written({}, {"a.md": "# A<!-- title -->\n"}, **course_)["a.md"] == "# Kernels \\<b> & \\*co\\*, a\\_b\n"


def test_code_may_say_points():
    text = "# A\n\n```text\n(0.5 points)\n```\n"
    assert written({}, {"a.md": text}) == {"a.md": text}


def test_a_comment_is_no_part_of_a_heading():
    assert COMMENT.sub("", "# A<!-- title -->") == "# A"
    assert [anchor for _, _, anchor in headings(["# CS336 kernels<!-- title -->"])] == ["cs336-kernels"]


@pytest.fixture(scope="module")
def tree() -> release.Tree:
    """The files of the repository, as they are now"""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = {path: ROOT / path for path in listed.split("\0") if path}
    links = {
        path: release.File(os.fsencode(full.readlink()), release.LINK)
        for path, full in paths.items()
        if full.is_symlink()
    }
    return {path: release.File(full.read_bytes()) for path, full in paths.items() if full.is_file()} | links


@pytest.fixture
def of_course(monkeypatch):
    def become(points: dict[str, float | str]) -> None:
        for module in (course, in_course):
            monkeypatch.setattr(module, "course", lambda: Course(points=points))
        checks._of_course.cache_clear()

    yield become
    monkeypatch.undo()
    checks._of_course.cache_clear()


@pytest.mark.parametrize("points", COURSES, ids=[" ".join(map(str, one.items())) for one in COURSES])
def test_a_release_follows_another_course(points, tree, of_course):
    """Its package exports what is graded, and has no file, function or citation of what is off"""
    of_course(points)
    if points.get("vector_add") == OFF:
        with pytest.raises(release.ReleaseError, match=r"handout\.md:\d+: the course leaves \S+vector_add"):
            release.student_tree(tree)
        return
    cut = release.student_tree(tree)
    source = cut["cs336_kernels/__init__.py"].data.decode()
    for operator in operators.operators():
        own = [one.name for one in operator.problems if one.name in checks.problems()]
        assert (operator.file in cut) == bool(own)
        for function in operator.functions:
            is_there = function.problem in own or (not function.problem and bool(own))
            is_graded = is_there and (not operator.is_apart or not checks.is_practice(own[0]))
            assert (f'"{function.name}"' in source) == is_graded
            assert (f"def {function.name}(" in cut.get(operator.file, release.File(b"")).data.decode()) == is_there
    for path, file in cut.items():
        if path.startswith("cs336_kernels"):
            ast.parse(file.data)
