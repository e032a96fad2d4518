# SPDX-License-Identifier: Apache-2.0
"""The words of libvirt's domain XML: for each knob its attribute or element, or why it has none (pure).

What writes a disk (`disk`), what changes one setting of a domain (`alter`), and what names the settings that a
text lacks all read these rows, which are in `languages.json` as those of the other languages.
"""

from collections.abc import Mapping
from typing import Any

from virtune.dialects.language import ROWS, refusals_of
from virtune.model import stack
from virtune.model.knob import Knob

_WORDS: Mapping[str, Mapping[str, Any]] = ROWS["libvirt"]["words"]

DRIVER_ATTRIBUTES: Mapping[str, str] = _WORDS["driver"]
"""Attributes of a disk's `<driver>`."""

CONTROLLER_ATTRIBUTES: Mapping[str, str] = _WORDS["controller"]
"""Attributes of a controller's `<driver>`."""

LIMITS: Mapping[str, str] = {**{limit.knob: limit.libvirt for limit in stack.LIMITS}, **_WORDS["limits"]}
"""Elements of a disk's `<iotune>`."""

BLOCK_SIZES: Mapping[str, str] = _WORDS["blockio"]
"""Attributes of a disk's `<blockio>`."""

SCSI_MODELS: Mapping[str, str] = _WORDS["scsi models"]
"""libvirt's names of QEMU's SCSI controllers."""

POLL_WORDS: Mapping[str, str] = _WORDS["poll"]
"""Attributes of an IOThread's `<poll>`."""

POOL_WORDS: Mapping[str, str] = _WORDS["pool"]
"""Attributes of a listed `<iothread>`."""

TUNED: Mapping[str, tuple[str, str]] = {knob: (tag, word) for knob, (tag, word) in _WORDS["tuned"].items()}
"""Elements of `<cputune>` that pin or schedule something, and the attribute that says what."""

DISK_WORDS: Mapping[str, tuple[str, str]] = {
    **{knob: ("driver", word) for knob, word in DRIVER_ATTRIBUTES.items()},
    **{knob: (f"iotune/{word}", "") for knob, word in LIMITS.items()},
    **{knob: ("blockio", word) for knob, word in BLOCK_SIZES.items()},
    "device.rotation_rate": ("target", "rotation_rate"),
}
"""Where a disk has its settings: the way to an element, and the attribute of it; empty for its text."""

DOMAIN_WORDS: Mapping[str, tuple[str, str]] = {knob: (way, word) for knob, (way, word) in _WORDS["domain"].items()}
"""The same of the domain as a whole."""

OF_THE_DOMAIN = frozenset({"emulator.pin", "emulator.scheduler", *DOMAIN_WORDS})
OF_A_THREAD = frozenset({"iothread.pin", "iothread.scheduler", *POLL_WORDS, *POOL_WORDS})
OF_A_CONTROLLER = frozenset({"device.scsi_controller", *CONTROLLER_ATTRIBUTES} - {"device.iothread"})
OF_EITHER = frozenset({"device.iothread", "device.iothread_vq_mapping"})
OF_A_DISK = frozenset({"device.bus", "disk.cache_size", *DISK_WORDS})
_KNOWN = OF_THE_DOMAIN | OF_A_THREAD | OF_A_CONTROLLER | OF_EITHER | OF_A_DISK | {"vcpu.pin"}

REFUSALS: Mapping[str, str] = refusals_of("libvirt")
"""Why a knob cannot be set here, for knobs of the VM and its surroundings."""


def refusal(knob: str) -> str | None:
    """Return why domain XML cannot set a knob; None if it can."""
    return None if knob in _KNOWN else REFUSALS.get(knob, "it is not part of a domain's configuration")


def says(knob: Knob) -> str:
    """Return where domain XML has a knob, as it is written there."""
    of, (way, word) = "disk", DISK_WORDS.get(knob.id, ("", ""))
    if knob.id in CONTROLLER_ATTRIBUTES and not way:
        of, way, word = "controller", "driver", CONTROLLER_ATTRIBUTES[knob.id]
    if not way or way == "target":
        return knob.spelled.get("libvirt", "")
    *elements, last = (of, *way.split("/"))
    return "".join(f"<{element}>" for element in elements) + (f"<{last} {word}=>" if word else f"<{last}>")
