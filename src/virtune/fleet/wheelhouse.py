# SPDX-License-Identifier: Apache-2.0
"""The wheels that a host needs to install this virtune without a network: our own, and those of what it needs."""

import base64
import hashlib
import importlib.metadata
import importlib.util
import io
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import virtune
from virtune.model.errors import MissingToolError, PreconditionError
from virtune.shell import CommandError, cache_directory, needs_of, run

_DOWNLOAD_SECONDS = 1800.0
_TIME = (1980, 1, 1, 0, 0, 0)
_WHEEL = re.compile(r"[A-Za-z0-9_.]+-[A-Za-z0-9_.!+]+(?:-[A-Za-z0-9_.]+){3,4}\.whl")
_GLIBC_LEAST = 5
"""manylinux1 was of glibc 2.5."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlatform:
    """What a host's wheels depend on."""

    python: str
    machine: str
    glibc: tuple[int, int]

    @property
    def text(self) -> str:
        """Its name in the cache: `cp311-x86_64-2.36`."""
        return f"cp{self.python.replace('.', '')}-{self.machine}-{'.'.join(map(str, self.glibc))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheels:
    """Wheels by their file names."""

    files: Mapping[str, bytes]

    @property
    def sums(self) -> dict[str, str]:
        """The SHA-256 of each."""
        return {name: hashlib.sha256(content).hexdigest() for name, content in self.files.items()}

    def packed(self) -> bytes:
        """Return them as one tar archive."""
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w") as archive:
            for name, content in self.files.items():
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(content), 0o600
                archive.addfile(entry, io.BytesIO(content))
        return file.getvalue()


def wheels_for(host: HostPlatform, folder: Path | None) -> Wheels:
    """Return the wheels for a host: those of `folder`, or else those that pip downloads here, kept in the cache.

    Raises PreconditionError where there is no wheel for such a host.
    """
    if folder is None:
        folder = cache_directory() / "wheels" / f"{virtune.__version__}-{host.text}"
        if not (folder / "whole").exists():
            _download(host, folder)
            (folder / "whole").touch()
    try:
        found = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if _WHEEL.fullmatch(path.name)}
    except OSError as error:
        raise PreconditionError(f"cannot read the wheels in {folder}: {(error.strerror or '').lower()}") from None
    if not any(name.startswith("pip-") for name in found):
        raise PreconditionError(f"{folder} has no wheel of pip", hint=f"`pip download -d {folder} pip virtune`")
    name, content = own_wheel()
    others = {one: file for one, file in found.items() if not one.startswith("virtune-")}
    return Wheels(files={**others, name: content})


def own_wheel() -> tuple[str, bytes]:
    """Return the wheel of the virtune that runs, with its name: the host gets exactly this program."""
    about = importlib.metadata.distribution("virtune")
    name = f"virtune-{virtune.__version__}"
    files = dict(_modules(Path(virtune.__file__).parent))
    for one in ("METADATA", "entry_points.txt"):
        files[f"{name}.dist-info/{one}"] = (about.read_text(one) or "").encode()
    files[f"{name}.dist-info/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: virtune\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    record = "".join(f"{path},sha256={_digest(content)},{len(content)}\n" for path, content in files.items())
    files[f"{name}.dist-info/RECORD"] = f"{record}{name}.dist-info/RECORD,,\n".encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in files.items():
            wheel.writestr(zipfile.ZipInfo(path, _TIME), content, zipfile.ZIP_DEFLATED)
    return f"{name}-py3-none-any.whl", packed.getvalue()


def needed() -> Sequence[str]:
    """Return what virtune needs on a host: what measures and judges, without what draws pictures and serves pages."""
    return [*needs_of(), *needs_of("measure")]


def _modules(package: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(package.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield f"virtune/{path.relative_to(package)}", path.read_bytes()


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def _download(host: HostPlatform, folder: Path) -> None:
    if importlib.util.find_spec("pip") is None:
        raise MissingToolError(
            "pip is not installed here, and fetches the wheels for the hosts", hint="--wheelhouse DIR"
        )
    major, minor = host.glibc
    tags = [f"manylinux_{major}_{one}_{host.machine}" for one in range(minor, _GLIBC_LEAST - 1, -1)]
    tags += [f"manylinux{one}_{host.machine}" for one in ("2014", "2010", "1")]
    words = ["--only-binary", ":all:", "--implementation", "cp", "--python-version", host.python]
    words += [word for tag in tags for word in ("--platform", tag)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--dest",
            str(folder),
            *words,
            "pip",
            *needed(),
        ]
        run(command, timeout_seconds=_DOWNLOAD_SECONDS)
    except CommandError as error:
        hint = "--wheelhouse DIR names a directory that has them"
        raise PreconditionError(
            f"cannot fetch the wheels for {host.text}: {error.hint or error.message}", hint=hint
        ) from None
    except OSError as error:
        raise PreconditionError(f"cannot keep wheels in {folder}: {(error.strerror or '').lower()}") from None
