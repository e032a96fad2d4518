# SPDX-License-Identifier: Apache-2.0
"""The sources of an appliance: a kernel with its modules, busybox, fio, and optionally the QEMU guest agent.

Installed programs are copied from this host; missing ones are downloaded as distribution packages by the
distribution's client and unpacked into the cache. Nothing is installed, and nothing needs root.
"""

import os
import platform
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from virtune import shell, warden
from virtune.bench.appliance.elf import is_dynamic
from virtune.model.errors import MissingToolError, PreconditionError
from virtune.probe.access import why_exchangeable

KERNEL_PACKAGE = "linux-image-cloud-amd64"
"""The kernel that Debian makes for clouds: small, NVMe built in, virtio as modules. It has no AHCI."""

GENERAL_KERNEL = "linux-image-amd64"
"""The kernel that Debian makes for every machine; it has AHCI, and is ten times as large."""

OWN_KERNEL = "`virtune appliance build --kernel VMLINUZ"

_DOWNLOAD_SECONDS = 600.0
_UNPACK_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The source files of an appliance; `agent` is the QEMU guest agent, None to leave it out."""

    kernel: Path
    modules: Path
    busybox: Path
    fio: Path
    agent: Path | None = None

    @property
    def release(self) -> str:
        """The kernel's release, which is the name of the directory with its modules."""
        return self.modules.name


def find_sources(
    packages: Path,
    *,
    kernel: Path | None = None,
    modules: Path | None = None,
    agent: bool = False,
    package: str = KERNEL_PACKAGE,
) -> Sources:
    """Find all sources, downloading missing ones into `packages`.

    `package` is the distribution's kernel if no other is named. `kernel` is the user's own vmlinuz, `modules` the
    directory of its modules (`/lib/modules/RELEASE`). Raises PreconditionError or MissingToolError with what to do.
    """
    if platform.machine() != "x86_64":
        raise PreconditionError(f"an appliance is made for x86_64 only, and this host is {platform.machine()}")
    if kernel is None:
        kernel, found = _packaged_kernel(packages, package)
    else:
        kernel, found = _own_kernel(kernel)
    modules = modules or found
    if modules is None or not modules.joinpath("modules.builtin").is_file():
        raise PreconditionError(
            f"the modules of the kernel {kernel} are not at hand",
            hint=f"{OWN_KERNEL} --modules /lib/modules/RELEASE` names them",
        )
    return Sources(
        kernel=kernel,
        modules=modules,
        busybox=_busybox(packages),
        fio=Path(shell.find("fio")).resolve(),
        agent=_guest_agent(packages) if agent else None,
    )


def _own_kernel(kernel: Path) -> tuple[Path, Path | None]:
    if not kernel.is_file():
        raise PreconditionError(f"there is no kernel {kernel}")
    release = kernel.name.removeprefix("vmlinuz-")
    places = (kernel.parent.parent / "lib" / "modules" / release, Path("/lib/modules") / release)
    return kernel.resolve(), next((place for place in places if place.is_dir()), None)


def _packaged_kernel(packages: Path, package: str) -> tuple[Path, Path | None]:
    """Return the newest of the distribution's kernels of this kind that was unpacked before, else download the
    current.
    """
    flavour = package.removeprefix("linux-image-")
    every = packages.glob("linux-image-*/boot/vmlinuz-*")
    unpacked = [path for path in every if _is_of(path.name, flavour) and _is_trusted(path)]
    at_hand = sorted(unpacked, key=lambda path: path.parent.parent.stat().st_mtime)
    if not at_hand:
        listed = _apt("apt-cache", ["depends", "--important", package]).stdout.splitlines()
        names = [line.rpartition(" ")[2] for line in listed if "Depends: linux-image-" in line]
        if not names:
            raise PreconditionError(
                f"the package {package} is not known here",
                hint=f"`apt-get update` brings the package lists; {OWN_KERNEL}` takes one of your own",
            )
        at_hand = sorted(_unpacked(packages, names[0]).glob("boot/vmlinuz-*"))
    if not at_hand:
        raise PreconditionError(f"the package {package} holds no kernel")
    return _own_kernel(at_hand[-1])


def _is_of(name: str, flavour: str) -> bool:
    """Whether `vmlinuz-6.1.0-56-cloud-amd64` is of the flavour `cloud-amd64`, and not of `amd64`."""
    return re.fullmatch(rf"vmlinuz-[^-]+(-[0-9.]+)?-{re.escape(flavour)}", name) is not None


def _busybox(packages: Path) -> Path:
    installed = shutil.which("busybox")
    if installed is not None and not is_dynamic(Path(installed)):
        return Path(installed).resolve()
    return _program_of(packages, "busybox-static", "bin/busybox", "usr/bin/busybox")


def _guest_agent(packages: Path) -> Path:
    installed = shutil.which("qemu-ga", path=os.pathsep.join(("/usr/sbin", "/usr/bin", "/usr/local/bin")))
    return Path(installed) if installed else _program_of(packages, "qemu-guest-agent", "usr/sbin/qemu-ga")


def _program_of(packages: Path, name: str, *places: str) -> Path:
    unpacked = [path for path in packages.glob(f"{name}_*") if _is_trusted(path)]
    at_hand = sorted(unpacked, key=lambda path: path.stat().st_mtime)
    found = at_hand[-1] if at_hand else _unpacked(packages, name)
    for place in places:
        if (found / place).is_file():
            return found / place
    raise PreconditionError(f"the package {name} holds no {Path(places[0]).name}")


def _is_trusted(path: Path) -> bool:
    """Whether nobody but us and root could have changed what was unpacked earlier."""
    return why_exchangeable(path.resolve()) is None


def _unpacked(packages: Path, name: str) -> Path:
    """Download a package and unpack it into a directory named after it, all at once or not at all."""
    packages.mkdir(parents=True, exist_ok=True)
    with warden.filled(packages / f".{name}") as work:
        _apt("apt-get", ["download", "-q", name], place=work)
        archives = list(work.glob("*.deb"))
        if len(archives) != 1:
            raise PreconditionError(f"the package {name} was not downloaded")
        tree = work / "tree"
        shell.run(["dpkg-deb", "-x", str(archives[0]), str(tree)], timeout_seconds=_UNPACK_SECONDS)
        home = packages / archives[0].stem.replace("%3a", ":")
        if not home.exists():
            tree.rename(home)
        return home


def _apt(program: str, words: list[str], *, place: Path | None = None) -> shell.Output:
    """Run the distribution's package client; its error message becomes one sentence."""
    if shutil.which(program) is None or shutil.which("dpkg-deb") is None:
        raise MissingToolError(
            "this host has no `apt-get`, by which virtune gets what its guests are made from",
            hint=f"{OWN_KERNEL}` takes a kernel of your own; busybox (static) must be installed",
        )
    try:
        return shell.run([program, *words], timeout_seconds=_DOWNLOAD_SECONDS, place=place)
    except shell.CommandError as error:
        complaint = next((line for line in error.output.splitlines() if line.startswith("E:")), error.message)
        raise PreconditionError(
            f"`{program} {words[0]}` failed: {complaint.removeprefix('E: ')}",
            hint="`apt-get update` brings the package lists up to date",
        ) from None
