# SPDX-License-Identifier: Apache-2.0
"""OpenStack's images and flavors, as `openstack image show -f json` and `flavor show -f json` print them (pure).

An image defines its disks as the guest sees them, a flavor the limits of its guests; both apply to guests created or
rebuilt later. The client's output cannot be given back to it, so a change consists of commands. The properties are
those of Nova's code: objects/image_meta.py and api/validation/extra_specs.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from virtune.dialects.language import Language, no_disk, one_of
from virtune.model import stack
from virtune.model.domain import Controller, DiskSource, Domain, DomainDisk, SettingChange
from virtune.model.errors import PlanError, ReadError

Object = dict[str, Any]

ALL = "disks"
"""What stands for all disks of the guests of an image or a flavor."""

_IMAGE = re.compile(rb'"(?:disk_format|container_format)"[ \t]*:')
_FLAVOR = re.compile(rb'"vcpus"[ \t]*:')
_RAM = re.compile(rb'"ram"[ \t]*:')
_BUSES = {
    "virtio": "virtio", "virtio-blk": "virtio", "scsi": "scsi", "virtio-scsi": "scsi", "sata": "sata", "ahci": "sata",
    "ide": "ide", "usb": "usb",
}  # fmt: skip
_CONTROLLERS = {"virtio-scsi-pci": "virtio-scsi", "lsi53c895a": "lsilogic", "mptsas1068": "lsisas1068"}
_FLAGS = {"on": "true", "off": "false"}
LIMITS: Mapping[str, str] = {limit.knob: limit.libvirt for limit in stack.LIMITS}
"""The flavor's quotas, by what libvirt calls them; the property is `quota:disk_` and this."""

_IMAGE_KEYS = {
    "device.bus": "hw_disk_bus",
    "device.scsi_controller": "hw_scsi_model",
    "device.packed": "hw_virtio_packed_ring",
}
_FLAVOR_KEYS = {"device.packed": "hw:virtio_packed_ring"} | {
    knob: f"quota:disk_{name}" for knob, name in LIMITS.items()
}


def knows(text: bytes) -> bool:
    """Whether a text is what the client prints of an image or a flavor."""
    if not text.lstrip().startswith(b"{") or b'"properties"' not in text:
        return False
    return _IMAGE.search(text) is not None or (_FLAVOR.search(text) is not None and _RAM.search(text) is not None)


def domains(text: bytes) -> tuple[Domain, ...]:
    """Read what stands for all guests of an image or a flavor; raises ReadError."""
    whole, properties = _read(text)
    line = text.count(b"\n", 0, text.index(b'"properties"')) + 1
    is_image = _is_image(whole)
    limits = () if is_image else tuple(_limits(properties))
    bus = (_word(properties, "hw_disk_bus") or "virtio") if is_image else None
    model = _word(properties, "hw_scsi_model")
    # Nova quiesces through the guest's agent, and refuses the snapshot of a guest that was promised none
    in_vain = _true(properties, "os_require_quiesce") and not _true(properties, "hw_qemu_guest_agent")
    disk = DomainDisk(
        target=ALL,
        line=line,
        bus=bus,
        source=DiskSource(kind="network", name=f"all disks of {'the image' if is_image else 'the flavor'}"),
        limits=limits,
        options=frozenset({"quiesce needs the agent"} if in_vain else ()),
    )
    controllers = (Controller(kind="scsi", index=0, line=line, model=model),) if bus == "scsi" else ()
    vcpus = whole.get("vcpus")
    return (
        Domain(
            name=str(whole.get("name") or ""),
            uuid=str(whole.get("id") or "") or None,
            kind="kvm",
            line=line,
            vcpus=vcpus if isinstance(vcpus, int) and 0 < vcpus < 10_000 else 1,
            disks=(disk,),
            controllers=controllers,
            language="openstack",
        ),
    )


def turn(text: bytes, wanted: SettingChange, _domain: str = "") -> bytes:
    """Return the text with one property set or taken away; raises PlanError for what is not this object's."""
    whole, properties = _read(text)
    if wanted.at not in ("", ALL):
        raise no_disk(wanted, [ALL])
    is_image = _is_image(whole)
    key = (_IMAGE_KEYS if is_image else _FLAVOR_KEYS).get(wanted.knob)
    if key is None:
        other = "flavor" if is_image else "image"
        raise PlanError(f"{wanted.knob} is the {other}'s: set it in what `openstack {other} show -f json` prints")
    changed = {name: value for name, value in properties.items() if name != key}
    if wanted.value is not None and not (wanted.knob in LIMITS and wanted.value == "0"):
        changed[key] = _written(wanted)
    return text if changed == properties else json.dumps(whole | {"properties": changed}, indent=2).encode()


def commands(before: bytes, after: bytes, _stem: str) -> tuple[str, ...]:
    """Return the client's commands that make one text of the other."""
    whole, old = _read(before)
    _, new = _read(after)
    what = "image" if _is_image(whole) else "flavor"
    which = shlex.quote(str(whole.get("id") or whole.get("name") or what.upper()))
    sets = [f"--property {shlex.quote(f'{name}={value}')}" for name, value in new.items() if old.get(name) != value]
    unsets = [f"--property {shlex.quote(name)}" for name in old if name not in new]
    said = [f"openstack {what} set {' '.join(sets)} {which}"] if sets else []
    return (*said, *([f"openstack {what} unset {' '.join(unsets)} {which}"] if unsets else []))


def _written(wanted: SettingChange) -> str:
    match wanted.knob:
        case "device.bus":
            return one_of(wanted, _BUSES)
        case "device.scsi_controller":
            return one_of(wanted, _CONTROLLERS | {one: one for one in _CONTROLLERS.values()})
        case "device.packed":
            return one_of(wanted, _FLAGS)
    value = wanted.value or ""
    if not value.isascii() or not value.isdecimal() or len(value) > 18:
        raise PlanError(f"{value[:40]!r} is no limit")
    return value


def _read(text: bytes) -> tuple[Object, Object]:
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        raise ReadError("it is not a JSON object") from None
    properties = whole.get("properties") if isinstance(whole, dict) else None
    if not isinstance(properties, dict):
        raise ReadError(
            "its properties are not an object", hint="`openstack image show -f json` of a client since 4.0"
        )
    return whole, properties


def _is_image(whole: Object) -> bool:
    return "disk_format" in whole or "container_format" in whole


def _word(properties: Object, key: str) -> str | None:
    value = properties.get(key)
    return value.lower() if isinstance(value, str) else None


def _limits(properties: Object) -> Iterator[tuple[str, int]]:
    for name in LIMITS.values():
        text = str(properties.get(f"quota:disk_{name}") or "")
        if text.isascii() and text.isdecimal() and len(text) < 19:
            yield name, int(text)


def _true(properties: Object, key: str) -> bool:
    return json.dumps(properties.get(key)).strip('"').lower() in ("true", "yes", "on", "1", "t", "y")


OPENSTACK = Language(
    name="openstack",
    title="OpenStack",
    text="an image or a flavor of OpenStack",
    knows=knows,
    domains=domains,
    turn=turn,
    commands=commands,
    given_back=False,
)
"""OpenStack's images and flavors."""
