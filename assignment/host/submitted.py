"""The functions and exceptions of a staged submission, for processes that import one."""

import contextlib
import difflib
import importlib
import importlib.machinery
import importlib.util
import linecache
import sys
import traceback
import types
from collections.abc import Callable, Iterable
from pathlib import Path

from assignment.calling.requests import WrongReturn
from assignment.protocol.replies import NOT_IMPORTED, Failed, Raised
from assignment.protocol.said import Said, Telling, at, joined
from assignment.whose import theirs

PACKAGE = "cs336_kernels"
MAX_MESSAGE = 2_000  # characters
NEAR = 0.9  # nearer than a backward's name is to its forward's
LAUNCHES = ("/assignment/simulator/launch.py", "/assignment/recorder/launches.py")  # what kernel[grid](...) enters
UNREADABLE = "an exception that raises another one when it is read; raise one of Python's own classes instead"


class Missing(Telling):
    """The submission has no such function."""


class NotImported(Missing):
    """The file that should hold the function cannot be imported."""

    def __init__(self, file: str, why: Said) -> None:
        super().__init__(Said(f"{file} cannot be imported: {why}", why.places))
        self.file, self.why = file, why.text


class ImportedSubmission:
    """The functions of a staged submission, imported when first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.isolated = False  # leave __init__.py alone: it fails, or kills the process
        self.import_error = ""  # how it fails
        self._loaded = False

    def load(self) -> None:
        """Import the package.

        If that fails, an empty one takes its place, whose files are imported one by one.
        """
        self._loaded = True
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]
        package = self._new_package()
        if self.isolated or not package.__spec__ or not package.__spec__.loader:
            return
        try:
            package.__spec__.loader.exec_module(package)
        except BaseException as error:
            self.isolated, self.import_error = True, type(error).__name__
            with contextlib.suppress(BaseException):  # its own words may be the submission's code
                self.import_error = summary(error, self.folder).text
            self.load()

    def _new_package(self) -> types.ModuleType:
        """Return the package from the submission's own folder, whatever else is on the path.

        None of its code has run.
        """
        folder = self.folder / PACKAGE
        init = folder / "__init__.py"
        if init.is_file():
            spec = importlib.util.spec_from_file_location(PACKAGE, init, submodule_search_locations=[str(folder)])
        else:
            spec = importlib.machinery.ModuleSpec(PACKAGE, None, is_package=True)
            spec.submodule_search_locations = [str(folder)]
        assert spec is not None
        package = sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
        return package

    def function(self, name: str, path: str) -> Callable:
        """Return the package's function of this name, or that of the file where it belongs.

        Raises Missing.
        """
        if not self._loaded:
            self.load()
        found = theirs(getattr, sys.modules[PACKAGE], name, None)
        if found is None or isinstance(found, types.ModuleType):
            found = theirs(getattr, found, name, None) or self._from_file(name, path)
        if not callable(found):
            raise Missing(f"{PACKAGE}.{name} is a {type(found).__name__}, expected a function")
        return found

    def _from_file(self, name: str, path: str) -> Callable:
        if not (self.folder / path).is_file():
            beside = (file.name for file in (self.folder / path).parent.glob("*.py"))
            raise Missing(f"{path} is missing, so there is no function {name}{_near(Path(path).name, beside)}")
        try:
            module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
        except BaseException as error:
            raise NotImported(path, summary(error, self.folder)) from error
        if not hasattr(module, name):
            raise Missing(f"{path} has no function {name}{_near(name, theirs(dir, module))}")
        return getattr(module, name)


def _near(name: str, names: Iterable[str]) -> str:
    """Return which of the names there are looks like the one that is wanted, for a message; "" if none does."""
    near = theirs(difflib.get_close_matches, name, names, 1, cutoff=NEAR)
    return f"; there is {near[0]}: rename it" if near else ""


def reply_to(error: BaseException, folder: Path) -> Failed | Raised:
    """Return the reply to a call that ended with an exception, whose class may raise at whatever is asked of it."""
    try:
        if type(error) in (WrongReturn, Missing):  # ours, and no class made of them
            return Failed(str(error)[:MAX_MESSAGE])
        if type(error) is NotImported:  # likewise
            message, why = str(error)[:MAX_MESSAGE], error.why[:MAX_MESSAGE]
            return Failed(message, NOT_IMPORTED, places=error.said.places, file=error.file, why=why)
        return _described(error, folder)
    except BaseException:
        return Raised(("Exception",), UNREADABLE, UNREADABLE, by_submission=True, in_kernel=False)


def _described(error: BaseException, folder: Path) -> Raised:
    """Return what the grader needs to know of an exception: types, message and place."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(folder)]
    types = tuple(cls.__name__ for cls in type(error).__mro__)
    by_submission = bool(own) and own[-1] is frames[-1]
    in_kernel = not by_submission and any(frame.filename.endswith(LAUNCHES) for frame in frames)
    said, message = summary(error, folder), str(error)[:MAX_MESSAGE]
    return Raised(types, said.text, message, by_submission, in_kernel, places=said.places)


def summary(error: BaseException, folder: Path) -> Said:
    """Return the exception in one line, and its place in another.

    The place is "  at cs336_kernels/rmsnorm.py:42 in rmsnorm_forward: source line".
    """
    try:
        return _summary(error, folder)
    except BaseException:
        return Said(UNREADABLE)


def _summary(error: BaseException, folder: Path) -> Said:
    if isinstance(error, SyntaxError) and error.filename:
        path = Path(error.filename)
        where = path.relative_to(folder) if path.is_relative_to(folder) else path.name
        code = (error.text or "").strip()
        return joined([f"{type(error).__name__}: {error.msg}", at(str(where), error.lineno or 0, "", code)])
    text = f"{type(error).__name__}: {error}".removesuffix(": ")[:MAX_MESSAGE]
    own = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).is_relative_to(folder)]
    if not own:
        return Said(text)
    frame = own[-1]
    source = linecache.getline(frame.filename, frame.lineno or 0).strip()
    place = str(Path(frame.filename).relative_to(folder))
    return joined([text, at(place, frame.lineno or 0, f" in {frame.name}", source)])
