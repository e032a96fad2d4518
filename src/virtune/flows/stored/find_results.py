# SPDX-License-Identifier: Apache-2.0
"""Find fio results in files and folders, and assign them to arms.

By default each file is its own arm; files and folders whose names differ by a counter only (`run-1`, `before_2`,
bench-fio's `run-3`) are repeats of one arm, and so are the runs of one file. `FILE:NUMBER` is one of its runs alone.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from virtune.analyse.trial.imported import Part, differing, parts_of
from virtune.fio.results import LIMIT, read_runs, refuse_length, run_of, text_of
from virtune.model.errors import ReadError, UsageError
from virtune.model.measurement import FioResult
from virtune.model.text import printable
from virtune.probe.reading import read_up_to

FILES_MAX = 10_000
"""The most files of a folder: each has to be read."""

_COUNTER = r"(?:run|round|rep|repeat|iter|iteration|pass|try)"
_REPEAT_DIR = re.compile(rf"(?:{_COUNTER}[-_. ]?)?\d{{1,6}}", re.IGNORECASE)
_REPEAT_STEM = re.compile(
    rf"^(?P<name>.*?)(?:(?:^|[-_. ]){_COUNTER}[-_. ]?\d{{1,6}}|[-_.]\d{{1,6}}| ?\(\d{{1,6}}\))$", re.IGNORECASE
)
_DIGITS = re.compile(r"(\d+)")
_FIO_SIGNS = (b'"fio version"', b"(groupid=")
"""What a file has that fio wrote, whether it can be read or not."""

_NAMED_MAX = 5
"""The most files without a result that are named of a folder."""

_LONGEST_ARM = 64
_LONGEST_NUMBER = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundResult:
    """One run in a file. `place` is the file's folder below the named one; `run` tells the run from every other: the
    file's device and inode, and its number there.
    """

    arm: str
    shown: str
    place: tuple[str, ...]
    stem: str
    content: bytes
    result: FioResult
    parts: tuple[Part, ...]
    run: tuple[int, int, int]


def find_results(
    paths: Sequence[Path], arms: Sequence[str], *, each: bool, say: Callable[[str], None]
) -> tuple[FoundResult, ...]:
    """Read every result in these files and folders.

    `arms` are names for them, one for all or one for each. With `each`, every path is one arm; otherwise names
    distinguish repeats of one arm from other arms. Files of a folder that are not results are reported and left out.
    Raises UsageError and ReadError.
    """
    if arms and len(arms) not in (1, len(paths)):
        raise UsageError(
            f"{len(arms)} names for {len(paths)} files and folders", hint="one --arm for all, or one for each"
        )
    names = list(arms) * (len(paths) if len(arms) == 1 else 1) if arms else _names(paths)
    found = [one for path, name in zip(paths, names, strict=True) for one in _results(path, name, say)]
    if len({one.run for one in found}) < len(found):
        raise UsageError("the same run is given twice", hint="a run is not a repeat of itself")
    if not arms and not each:
        if len(paths) == 1 and paths[0].is_dir():
            found = _arms_in_folder(found)
        else:
            found = [replace(one, arm=_without_counter(one.arm) or _parent(one.shown)) for one in found]
    shown = _arm_names(one.arm for one in found)
    return tuple(replace(one, arm=shown[one.arm]) for one in found)


def _names(paths: Sequence[Path]) -> list[str]:
    """The shortest distinct ends of the paths: `result`, or `before/result` and `after/result`."""
    parts = [(*path.absolute().parts[1:-1], path.stem if path.is_file() else path.absolute().name) for path in paths]
    for depth in range(1, max((len(part) for part in parts), default=1) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    raise UsageError("the same file is given twice", hint="a run is not a repeat of itself")


def file_and_run(path: Path) -> tuple[Path, int | None]:
    """Tell a file (`results.json`) from one of its runs (`results.json:2`): its path, and the number of the run."""
    name, _, number = path.name.rpartition(":")
    named = path.with_name(name) if name else path
    if number.isdecimal() and len(number) < _LONGEST_NUMBER and not path.exists() and named.is_file():
        return named, int(number)
    return path, None


def _results(path: Path, arm: str, say: Callable[[str], None]) -> Iterator[FoundResult]:
    if not path.is_dir():
        file, only = file_and_run(path)
        found = _found(file, Path(file.name), arm, _content(file), only=only)
        if len(found) > 1:
            say(f"{path}: {len(found)} runs, taken as repeats; `{path}:1` is the first of them alone")
        yield from found
        return
    seen, others = 0, list[str]()
    for file in _files(path):
        content = _content(file)
        try:
            found = _found(file, file.relative_to(path), arm, content)
            seen += len(found)
            yield from found
        except ReadError as error:
            if any(sign in content for sign in _FIO_SIGNS):
                say(f"left out {error.message}")
            others.append(printable(str(file.relative_to(path))))
    if not seen:
        raise ReadError(f"{path}: no file in it holds a fio result", hint="virtune reads fio's JSON and its text")
    if others:
        without = "other file that holds none" if len(others) == 1 else "other files that hold none"
        named = ", ".join(others[:_NAMED_MAX]) + (", ..." if len(others) > _NAMED_MAX else "")
        say(f"{path}: {seen} result{'' if seen == 1 else 's'}, and {len(others)} {without}: {named}")


def _files(folder: Path) -> Iterator[Path]:
    """Every regular file below a folder, in natural order: run-2 before run-10. A link to one of them is none of its
    own.
    """
    found: list[Path] = []
    for directory, folders, files in os.walk(folder):
        folders.sort()
        found += [Path(directory) / name for name in files if (Path(directory) / name).is_file()]
        if len(found) > FILES_MAX:
            raise ReadError(f"{folder} has more than {FILES_MAX:,} files", hint="name the folder of the results")
    links = {file for file in found if file.is_symlink()}
    named = {_identity(file) for file in found if file not in links}
    kept = [file for file in found if file not in links or _identity(file) not in named]
    return iter(sorted(kept, key=lambda file: _counted(str(file))))


def _identity(file: Path) -> tuple[int, int]:
    about = file.stat()
    return about.st_dev, about.st_ino


def _counted(text: str) -> list[tuple[int, str]]:
    return [(int(piece[:18]), "") if piece.isdecimal() else (-1, piece) for piece in _DIGITS.split(text)]


def _content(path: Path) -> bytes:
    try:
        return read_up_to(path, LIMIT + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"cannot read {str(path)!r}: {reason}", hint="name fio results or folders of them") from None


def _found(path: Path, relative: Path, arm: str, content: bytes, *, only: int | None = None) -> list[FoundResult]:
    """Return the runs in a file, each with what of the content is its own; `only` is the one that is wanted."""
    shown = printable(str(path), most=100)
    try:
        refuse_length(len(content))
        runs = read_runs(text_of(content))
        if only is not None:
            run_of(runs, only)  # raises where there is no such run
    except ReadError as error:
        raise ReadError(f"{shown}: {error.message}", hint=error.hint) from None
    alone = len(runs) == 1
    return [
        FoundResult(
            arm=arm,
            shown=shown if alone else f"{shown}:{number}",
            place=relative.parts[:-1],
            stem=relative.stem,
            content=content if alone else run.text.encode(),
            result=run.result,
            parts=parts_of(run.result),
            run=(*_identity(path), number),
        )
        for number, run in enumerate(runs, 1)
        if only in (None, number)
    ]


def _arms_in_folder(found: list[FoundResult]) -> list[FoundResult]:
    """Subfolders (or files) are arms if two of them ran the same job; otherwise the folder is one arm."""
    candidates = [
        next((step for step in one.place if not _REPEAT_DIR.fullmatch(step)), "")
        or ("" if one.place else _without_counter(one.stem))
        for one in found
    ]
    pairs = [(name, part) for name, one in zip(candidates, found, strict=True) for part in one.parts]
    # by job name first, so that thousands of files of different jobs are compared only within a name
    alike: dict[str, list[tuple[str, Part]]] = {}
    for name, part in pairs:
        alike.setdefault(part.name, []).append((name, part))
    shared = any(_shared(group) for group in alike.values())
    if not shared:
        return found
    return [replace(one, arm=name or one.arm) for name, one in zip(candidates, found, strict=True)]


def _shared(group: list[tuple[str, Part]]) -> bool:
    """Whether two of different names ran the same job."""
    firsts: list[tuple[str, Part]] = []
    for name, part in group:
        same = next((seen for seen in firsts if not differing(seen[1].shape, part.shape)), None)
        if same is None:
            firsts.append((name, part))
        elif same[0] != name:
            return True
    return False


def _without_counter(name: str) -> str:
    if name.isdecimal():
        return ""
    match = _REPEAT_STEM.match(name)
    return match["name"].rstrip("-_. ") if match else name


def _parent(shown: str) -> str:
    return Path(shown).absolute().parent.name


def _arm_names(names: Iterable[str]) -> dict[str, str]:
    """Return a name to show for each: short, without control characters, and as different as they were."""
    shown: dict[str, str] = {}
    taken: set[str] = set()
    for name in dict.fromkeys(names):
        whole = printable(name.strip()) or "results"
        short = whole[-_LONGEST_ARM:]
        for number in count(2):
            if short not in taken:
                break
            end = f"~{number}"
            short = whole[-_LONGEST_ARM + len(end) :] + end
        taken.add(short)
        shown[name] = short
    return shown
