# SPDX-License-Identifier: Apache-2.0
"""What a host gets to run this virtune without a network: our own modules, and those of others that it needs, packed
once for each platform.
"""

import gzip
import hashlib
import importlib.metadata
import importlib.util
import json
import re
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

import virtune
from virtune.model.errors import MissingToolError, PreconditionError, UsageError, words_of
from virtune.model.text import printable
from virtune.shell import CommandError, cache_directory, needs_of, run

_PIP_SECONDS = 1800.0
_GLIBC_LEAST = 5
"""manylinux1 was of glibc 2.5."""

_PLATFORM = re.compile(r"(\w{1,40})-3\.(\d{1,3})-(\w{1,40})-(\w*)-(?:(\d{1,4})\.(\d{1,4})[\d.]*)?")
"""As a host says it: `CPython-3.11-x86_64-glibc-2.36`."""

_PYTHON_LEAST = 11

_OF_SCIPY = ("_lib", "special")
"""The only parts of it that anything here loads: of 110 MB 12 are left, and the libraries that these need."""

_OF_OTHERS = (
    "numpy/distutils", "scipy/special/cython_special", "sqlalchemy/dialects/mssql", "sqlalchemy/dialects/mysql",
    "sqlalchemy/dialects/oracle", "sqlalchemy/testing",
)  # fmt: skip
"""How the paths begin of what else is large and loaded by nothing here."""

_DROPPED = ("tests", "bin", "include", "_pyinstaller")
"""Directories that no program loads: what tests or builds with a package, and scripts with this machine's Python."""

_KINDS = (".pyi", ".pyx", ".pxd", ".h", ".hpp", ".c", ".a", ".f90", ".pyc")
"""Ends of the names of files that only compilers and type checkers read, or that the host makes itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlatform:
    """What decides which wheels run on a host."""

    python: str
    machine: str
    glibc: tuple[int, int]

    @property
    def text(self) -> str:
        """Its name in the cache: `cp311-x86_64-2.36`."""
        return f"cp{self.python.replace('.', '')}-{self.machine}-{'.'.join(map(str, self.glibc))}"


def platform_of(said: str) -> HostPlatform:
    """Read a platform as a host says it. Raises PreconditionError for one that no wheels are made for."""
    found = _PLATFORM.fullmatch(said)
    if found is None:
        hint = "such as CPython-3.11-x86_64-glibc-2.36"
        raise UsageError(f"{printable(said, most=80)!r} is not the platform of a host", hint=hint)
    implementation, minor, machine, libc, *glibc = found.groups()
    if implementation != "CPython" or libc != "glibc" or None in glibc:
        why = "its Python is not CPython on glibc, for which wheels are made"
        raise PreconditionError(why, hint="install it by hand there")
    if int(minor) < _PYTHON_LEAST:
        hint = "`--python PATH` names another one there"
        raise PreconditionError(f"has Python 3.{minor}, and 3.{_PYTHON_LEAST} is needed", hint=hint)
    return HostPlatform(python=f"3.{minor}", machine=machine, glibc=(int(glibc[0]), int(glibc[1])))


def artefact_for(host: HostPlatform, wheelhouse: Path | None) -> Path:
    """Return the archive for hosts of a platform, made of a directory's wheels, or else of those that pip fetches.

    It is kept in the cache until something else goes into it. Raises PreconditionError where it cannot be made.
    """
    ours = own_files()
    wheels = [] if wheelhouse is None else sorted(wheelhouse.glob("*.whl"))
    made_of = {one: hashlib.sha256(content).hexdigest() for one, content in ours.items()}
    others = [(one.name, one.stat().st_size) for one in wheels]
    makes = [made_of, *needed(), *_OF_SCIPY, *_OF_OTHERS, *_DROPPED, *_KINDS, str(wheelhouse), others]
    key = hashlib.sha256(json.dumps(makes).encode()).hexdigest()[:16]
    path = cache_directory() / "fleet" / f"virtune-{virtune.__version__}-{host.text}-{key}.tar.gz"
    if path.exists():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".packed-", dir=path.parent) as made:
            packages = Path(made) / "packages"
            _fetch(host, wheelhouse, into=packages)
            for one, content in ours.items():
                (packages / one).parent.mkdir(parents=True, exist_ok=True)
                (packages / one).write_bytes(content)
            _pack(packages, Path(made) / path.name)
            (Path(made) / path.name).replace(path)
    except OSError as error:
        raise PreconditionError(f"cannot make {path}: {words_of(error)}") from None
    return path


def own_files() -> dict[str, bytes]:
    """Return the files of the virtune that runs, by their paths: the host gets exactly this program."""
    package, about = Path(virtune.__file__).parent, importlib.metadata.distribution("virtune")
    modules = (one for one in sorted(package.rglob("*")) if one.is_file() and "__pycache__" not in one.parts)
    files = {f"virtune/{one.relative_to(package)}": one.read_bytes() for one in modules}
    known = about.read_text("METADATA") or ""
    return {**files, f"virtune-{virtune.__version__}.dist-info/METADATA": known.encode()}


def needed() -> Sequence[str]:
    """Return what virtune needs on a host: what measures and judges, without what draws pictures and serves pages."""
    return [*needs_of(), *needs_of("measure")]


def is_wanted(path: PurePath) -> bool:
    """Whether a host needs a file of the installed packages."""
    if path.parts[0] == "scipy" and len(path.parts) > len(("scipy", "special")) and path.parts[1] not in _OF_SCIPY:
        return False
    dropped = path.as_posix().startswith(_OF_OTHERS) or set(_DROPPED) & set(path.parts[:-1])
    return not dropped and path.suffix not in _KINDS


def _fetch(host: HostPlatform, wheelhouse: Path | None, *, into: Path) -> None:
    """Install what virtune needs below a directory, as pip does it for that platform; nothing of it runs here."""
    major, minor = host.glibc
    tags = [f"manylinux_{major}_{one}_{host.machine}" for one in range(minor, _GLIBC_LEAST - 1, -1)]
    tags += [f"manylinux{one}_{host.machine}" for one in ("2014", "2010", "1")]
    words = ["--only-binary", ":all:", "--implementation", "cp", "--python-version", host.python, "--no-compile"]
    words += [word for tag in tags for word in ("--platform", tag)]
    words += ["--no-index", "--find-links", str(wheelhouse)] if wheelhouse else []
    words += ["--quiet", "--disable-pip-version-check", "--target", str(into)]
    try:
        run([*_pip(wheelhouse), "install", *words, *needed()], timeout_seconds=_PIP_SECONDS)
    except CommandError as error:
        reasons = [line for line in error.output.splitlines() if line.startswith("ERROR: ")]
        said = reasons[-1].removeprefix("ERROR: ") if reasons else error.hint or error.message
        hint = "--wheelhouse DIR names a directory that has them"
        raise PreconditionError(f"cannot get the wheels for {host.text}: {printable(said)}", hint=hint) from None


def _pip(wheelhouse: Path | None) -> list[str]:
    """Return what calls pip: this Python's own, or else the one in the directory."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    for wheel in sorted((wheelhouse or Path("/nonexistent")).glob("pip-*.whl")):
        return [sys.executable, f"{wheel}/pip"]
    raise MissingToolError("pip is not installed here, and fetches the wheels for the hosts", hint="--wheelhouse DIR")


def _pack(packages: Path, archive: Path) -> None:
    """Write what hosts need of the packages as an archive, the same one for the same files."""
    with (
        gzip.GzipFile(archive, "wb", compresslevel=6, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for path in sorted(packages.rglob("*")):
            if path.is_file() and is_wanted(path.relative_to(packages)):
                entry = tarfile.TarInfo(str(path.relative_to(packages)))
                entry.size, entry.mode = path.stat().st_size, 0o644
                with path.open("rb") as file:
                    tar.addfile(entry, file)
