# SPDX-License-Identifier: Apache-2.0
"""The languages in which VMs are configured, and which of them a file is written in (pure)."""

from virtune.dialects.bhyve import REFUSALS as BHYVE_REFUSALS
from virtune.dialects.bhyve import alter_bhyve, is_bhyve, read_bhyve
from virtune.dialects.kubevirt import KUBEVIRT
from virtune.dialects.language import Language
from virtune.dialects.libvirt import words as libvirt_words
from virtune.dialects.libvirt.alter import alter
from virtune.dialects.libvirt.domain import read_domain
from virtune.dialects.libvirt.objections import require_accepted
from virtune.dialects.nova import NOVA
from virtune.dialects.openstack import OPENSTACK
from virtune.dialects.proxmox import PROXMOX
from virtune.dialects.qemu.command import QEMU
from virtune.dialects.vm_bhyve import VM_BHYVE
from virtune.dialects.vmx import REFUSALS as VMX_REFUSALS
from virtune.dialects.vmx import alter_vmx, is_vmx, read_vmx
from virtune.dialects.xl import REFUSALS as XL_REFUSALS
from virtune.dialects.xl import alter_xl, is_xl, read_xl
from virtune.model.errors import ReadError
from virtune.model.knobs import KNOBS


def _is_xml(text: bytes) -> bool:
    return text.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<")


def _libvirt_says(knob: str) -> str:
    for words, where in (
        (libvirt_words.DRIVER_ATTRIBUTES, "<disk><driver {}=>"),
        (libvirt_words.CONTROLLER_ATTRIBUTES, "<controller><driver {}=>"),
        (libvirt_words.LIMITS, "<disk><iotune><{}>"),
        (libvirt_words.BLOCK_SIZES, "<disk><blockio {}=>"),
    ):
        if knob in words:
            return where.format(words[knob])
    return next(one.spelled.get("libvirt", "") for one in KNOBS if one.id == knob)


LIBVIRT = Language(
    name="libvirt",
    title="libvirt",
    text="a libvirt domain",
    knows=_is_xml,
    domains=lambda text: (read_domain(text),),
    turn=lambda text, turn, _: alter(text, turn),
    require_accepted=require_accepted,
    says={knob.id: _libvirt_says(knob.id) for knob in KNOBS if libvirt_words.refusal(knob.id) is None},
    refusals={knob.id: because for knob in KNOBS if (because := libvirt_words.refusal(knob.id)) is not None},
)

VMX = Language(
    name="vmx",
    title="VMware",
    text="a .vmx",
    knows=is_vmx,
    domains=lambda text: (read_vmx(text),),
    turn=lambda text, turn, _: alter_vmx(text, turn),
    says={
        "device.scsi_controller": 'scsi0.virtualDev = "pvscsi" | "lsisas1068"',
        "device.rotation_rate": 'scsi0:0.virtualSSD = "0" | "1"',
        "disk.cache": 'scsi0:0.writeThrough = "TRUE" | "FALSE" (writethrough, writeback)',
    },
    refusals=VMX_REFUSALS,
)

BHYVE = Language(
    name="bhyve",
    title="bhyve",
    text="a configuration of bhyve",
    knows=is_bhyve,
    domains=lambda text: (read_bhyve(text),),
    turn=lambda text, turn, _: alter_bhyve(text, turn),
    says={
        "disk.cache": "nocache= (O_DIRECT) and direct= (O_SYNC)",
        "disk.discard": "nodelete=true (ignore), without it unmap",
        "nvme.max_ioqpairs": "maxq= of an NVMe disk",
    },
    refusals=BHYVE_REFUSALS,
)

XL = Language(
    name="xl",
    title="Xen",
    text="an xl configuration",
    knows=is_xl,
    domains=lambda text: (read_xl(text),),
    turn=lambda text, turn, _: alter_xl(text, turn),
    says={"disk.discard": "discard | no-discard"},
    refusals=XL_REFUSALS,
)

LANGUAGES = (LIBVIRT, QEMU, VMX, BHYVE, VM_BHYVE, KUBEVIRT, OPENSTACK, NOVA, PROXMOX, XL)
"""The languages, in the order in which they are asked whether a text is theirs."""

SUFFIXES = (".xml", ".conf", ".cfg", ".vmx", ".yaml", ".yml", ".json", ".cmdline")
"""Files of a folder that may hold a VM."""


def language_of(text: bytes) -> Language:
    """Return the language that a text is written in, by what is in it; raises ReadError for none of them."""
    found = next((one for one in LANGUAGES if one.knows(text)), None)
    if found is None:
        names = ", ".join(one.title for one in LANGUAGES)
        raise ReadError(f"it is not a VM in a language that virtune knows ({names})")
    return found
