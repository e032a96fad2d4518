# SPDX-License-Identifier: Apache-2.0
"""The languages in which VMs are configured, and which of them a file is written in (pure)."""

from collections.abc import Callable
from dataclasses import dataclass

from virtune.dialects.bhyve import alter_bhyve, is_bhyve, read_bhyve
from virtune.dialects.libvirt import read_domain
from virtune.dialects.libvirt_alter import alter
from virtune.dialects.proxmox import alter_proxmox, is_proxmox, read_proxmox
from virtune.dialects.vmx import alter_vmx, is_vmx, read_vmx
from virtune.dialects.xl import alter_xl, is_xl, read_xl
from virtune.model.domain import Domain
from virtune.model.errors import ReadError


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """One language: how a domain is read from it, and altered in it (PlanError for what it cannot say)."""

    name: str
    read: Callable[[bytes], Domain]
    alter: Callable[..., bytes]
    knows: Callable[[bytes], bool]


def _is_xml(text: bytes) -> bool:
    return text.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<")


LIBVIRT = Language(name="libvirt", read=read_domain, alter=alter, knows=_is_xml)

LANGUAGES = (
    LIBVIRT,
    Language(name="vmx", read=read_vmx, alter=alter_vmx, knows=is_vmx),
    Language(name="bhyve", read=read_bhyve, alter=alter_bhyve, knows=is_bhyve),
    Language(name="proxmox", read=read_proxmox, alter=alter_proxmox, knows=is_proxmox),
    Language(name="xl", read=read_xl, alter=alter_xl, knows=is_xl),
)

SUFFIXES = (".xml", ".conf", ".cfg", ".vmx")
"""Files of a folder that may hold a VM."""


def language_of(text: bytes) -> Language:
    """Return the language that a text is written in, by what is in it; raises ReadError for none of them."""
    found = next((one for one in LANGUAGES if one.knows(text)), None)
    if found is None:
        raise ReadError("it is no VM in a language that virtune knows (libvirt, Proxmox, xl, .vmx, bhyve)")
    return found
