# SPDX-License-Identifier: Apache-2.0
"""The languages in which VMs are configured, and which of them a file is written in (pure)."""

from virtune.dialects.bhyve import BHYVE, VM_BHYVE
from virtune.dialects.kubevirt import KUBEVIRT
from virtune.dialects.language import Language
from virtune.dialects.libvirt.alter import LIBVIRT
from virtune.dialects.nova import NOVA
from virtune.dialects.openstack import OPENSTACK
from virtune.dialects.proxmox import PROXMOX
from virtune.dialects.qemu.command import QEMU
from virtune.dialects.vmx import VMX
from virtune.dialects.xl import XL
from virtune.model.errors import ReadError

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
