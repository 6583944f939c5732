"""The files of an operator that is like another: those of the other with its name changed, a few of them made small."""

import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from assignment.bank import corpus
from assignment.new import names, planted
from assignment.new.names import OperatorError
from assignment.release import BANK, LINK, REFERENCE, SOLUTION, STUBS, File, Tree, stub
from tests import operators

OURS = ("oracle", "models", "tests", "operators")  # what stands before a dot in front of an operator's name
KEPT = re.compile(r"mathematics|algorithm|interface|what goes wrong|how it is graded", re.IGNORECASE)
AS_IT_IS = ("Interface", "How it is graded")  # sections of a chapter that fit the new operator too


def renaming(like: operators.Operator, name: str) -> Callable[[str], str]:
    """Return what changes the name in a text: alone and as a part of a longer one, as a class and as a title.

    An attribute of PyTorch's or Triton's that has the same name stays.
    """
    title = like.problems[0].title
    new = {like.name: name, camel(like.name): camel(name), title: camel(name) if title.isidentifier() else titled(name)}
    after_dot = "|".join(rf"(?<=\b{module}\.)" for module in OURS)
    words = "|".join(map(re.escape, sorted(new, key=len, reverse=True)))
    pattern = re.compile(rf"(?:(?<![\w.])|{after_dot})((?:[A-Za-z0-9]*_)*)({words})(?![A-Za-z0-9])")
    return lambda text: pattern.sub(lambda match: match[1] + new[match[2]], text)


def titled(name: str) -> str:
    return name.replace("_", " ").capitalize()


def camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def tree(like: operators.Operator, name: str, root: Path) -> Tree:
    """Return the files of the new operator by path."""
    renamed, file = renaming(like, name), names.stub_of(name)
    made = {renamed(place): renamed(path.read_text(encoding="utf-8")) for place, path in _of(like, root)}
    for place, change in ((f"tests/{name}/record.py", record), (f"handout/{name}.md", skeleton)):
        made[place] = change(made[place], like, name)
    solution = made[f"{BANK}{name}{SOLUTION}"]
    mistake = planted.TheSign(like, name, renamed)
    made[f"assignment/operators/{name}/misconceptions.py"] = mistake.misconceptions()
    made[f"{BANK}{name}/bugs.py"] = mistake.bugs(solution)
    made[f"{BANK}{name}/variants/__init__.py"] = f'"""Right ways to {name} in other styles than the solution\'s."""\n'
    made[file] = stub(solution, file)
    link = REFERENCE + file.removeprefix(STUBS)
    target = posixpath.relpath(f"{BANK}{name}{SOLUTION}", posixpath.dirname(link))
    return {place: File(text.encode()) for place, text in made.items()} | {link: File(target.encode(), LINK)}


def _of(like: operators.Operator, root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files of the other one that are taken over, and where they would lie."""
    own, bank = root / "assignment/operators" / like.name, root / BANK / like.name
    taken = [root / "handout" / f"{like.name}.md", bank / "__init__.py", bank / SOLUTION.strip("/")]
    taken += [*(root / "tests" / like.name).glob("*.py"), *own.glob("*.py"), *own.glob("peers/*.py")]
    yield from ((path.relative_to(root).as_posix(), path) for path in taken if path.stem != "misconceptions")
    yield f"{BANK}{like.name}/variants/{like.name}_plain.py", variant(like, bank)


def variant(like: operators.Operator, bank: Path) -> Path:
    """Return the shortest right way to do it that is whole, and pays for nothing."""
    functions = {function.name for function in like.functions}
    found = [
        path
        for path in (*bank.glob("variants/[!_]*.py"), *bank.glob("base/[!_]*.py"))
        if path.stem not in corpus.PAYS and functions <= {*corpus.defined(path.read_bytes())}
    ]
    if not found:
        raise OperatorError(
            f"expected a right variant of {like.name} in one file, got none in {bank}: choose another one"
        )
    return min(sorted(found), key=lambda path: len(path.read_bytes()))


def record(text: str, like: operators.Operator, name: str) -> str:
    """Return a record as practice that is the last of all, and that nothing leads to yet."""
    text = text.replace(f"{STUBS}{name}.py", f"{STUBS}practice/{name}.py")
    last = max(one.position for one in operators.operators())
    text = re.sub(r"\n *follows=.*", "", text)
    text = re.sub(r"\bposition=\d+,", f'position={last + 1},\n    follows="",', text)
    return re.sub(rf'(Problem\(\s*"{name}",\s*)"[^"]*"', rf'\1"{titled(name)}"', text)


def skeleton(text: str, like: operators.Operator, name: str) -> str:
    """Return a chapter's headings, and what its interface is and how it is graded."""
    _, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    functions = [f"`{name}{function.name.removeprefix(like.name)}`" for function in like.functions]
    *first, last = functions
    listed = f"{', '.join(first)} and {last}" if first else last
    lines = [
        f"# {titled(name)}\n",
        f"*Practice: no points<!-- worth:{name} -->. Write {listed} in `{STUBS}practice/{name}.py`.*\n",
    ]
    for section in sections:
        heading, _, body = section.partition("\n")
        if heading in AS_IT_IS:
            lines.append(f"## {heading}\n{body}".rstrip() + "\n")
        elif KEPT.search(heading):
            lines.append(f"## {heading}\n\n{planted.WRONG if 'wrong' in heading else BODY.format(name=name)}")
    return "\n".join(lines)


BODY = "To be written. What counts is what `tests/{name}/oracle.py` computes.\n"
