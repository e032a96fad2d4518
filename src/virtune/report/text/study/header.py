# SPDX-License-Identifier: Apache-2.0
"""Where a study ran, in one line: host, kernel, programs, disk, virtune; so that two reports can be told apart."""

import json
from collections.abc import Collection, Iterator
from typing import Any

from virtune import __version__
from virtune.model.study import Study


def host_line(study: Study, facts: str, programs: Collection[str] = ()) -> str:
    """Name the host, the programs and the disk, by the facts that were stored when the study began; `programs` are
    those that loaded it, where trials noted them.
    """
    try:
        said = [*_host(study, json.loads(facts)["host"] if facts else {}, programs)]
    except (ValueError, LookupError, TypeError, AttributeError):  # from another version of virtune, or damaged
        said = ["host recorded in another form"]
    return ", ".join([*said, f"virtune {__version__}"])


def is_vm(facts: str) -> bool:
    """Whether the host was itself a VM, by its facts as JSON; False where they do not say."""
    try:
        return bool(facts) and _is_vm(json.loads(facts)["host"])
    except (ValueError, LookupError, TypeError, AttributeError):
        return False


def _is_vm(host: dict[str, Any]) -> bool:
    found = host.get("virtualization", {}).get("hypervisor")
    return isinstance(found, str) and found != "none"


def _host(study: Study, host: dict[str, Any], programs: Collection[str]) -> Iterator[str]:
    if not host:
        yield "host not recorded" if not study.imported else "measured elsewhere"
        return
    cpu = host["cpu"]
    yield f"{cpu['model'] or 'CPU unknown'} ({_plural(cpu['online'], 'CPU')})"
    yield f"Linux {host['kernel']['release']}"
    yield from _qemu(study, host["qemu"])
    others = [program for program in sorted(programs) if not program.startswith("fio")]
    fio = host["fio"]["program"]
    if fio is not None and (not others or len(others) < len(programs)):
        yield f"fio {str(fio['version']).removeprefix('fio-')}"
    if others:
        yield f"loaded by {' and '.join(others)}"
    yield _disk(study, host)


def _qemu(study: Study, qemu: dict[str, Any]) -> Iterator[str]:
    """Name the QEMU that the rigs of this study run; a domain's own QEMU is unknown here."""
    kinds = [arm.stack.kind for arm in study.arms]
    daemon = qemu["storage_daemon"] if any("qemu-storage-daemon" in kind.programs for kind in kinds) else None
    emulator = next(iter(qemu["emulators"] or ()), None) if any(kind.own_guest for kind in kinds) else None
    versions = dict.fromkeys(one["version"] for one in (daemon, emulator) if one is not None and one["version"])
    if versions:
        yield f"QEMU {', '.join(versions)}"
    bare = {arm.stack.machine.is_bare for arm in study.arms if arm.stack.kind.own_guest}
    if bare:
        yield (
            "VMs with Linux and without an operating system"
            if len(bare) > 1
            else ("a VM that only runs the load, without an operating system" if bare.pop() else "a VM with Linux")
        )


def _disk(study: Study, host: dict[str, Any]) -> str:
    if study.target is not None:
        return f"target {study.target}"
    backing = host["scratch"]["backing"]
    devices = [one["name"] for one in backing["devices"]]
    drivers = {disk["device"]["name"]: disk["device"]["driver"] for disk in host["disks"]}
    models = {disk["device"]["name"]: disk["device"]["model"] for disk in host["disks"]}
    if not devices:
        return f"disk unknown ({backing['filesystem'] or backing['gap']})"
    name = devices[-1]
    what = models.get(name) or drivers.get(name)
    itself = "; this host is itself a VM" if _is_vm(host) else ""
    return f"disk {name} ({f'{what}, ' if what else ''}{backing['filesystem']}{itself})"


def _plural(count: int | None, word: str) -> str:
    return f"? {word}s" if count is None else f"{count} {word}{'' if count == 1 else 's'}"
