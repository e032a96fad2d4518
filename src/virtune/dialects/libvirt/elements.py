# SPDX-License-Identifier: Apache-2.0
"""What libvirt's domain XML has, and what may be said of it: its elements' numbers, names, buses and IOThreads."""

from virtune.dialects.text.xml import Document, Element
from virtune.model.domain import DomainThread
from virtune.model.errors import ReadError

WRAPPERS = ("domstatus", "domainbackup", "domainsnapshot", "domaincheckpoint")
"""What libvirt itself wraps a domain in; the status file of a running one is of the first kind."""

_GUEST_PREFIXES = {"hd": "ide", "sd": "scsi", "vd": "virtio", "xvd": "xen", "fd": "fdc"}
THREADS_MAX = 10_000
"""The most IOThreads: each is a thread of one process, so more are a typing error."""


def domain_element(document: Document) -> Element:
    """Return the element `domain`, also out of libvirt's own wrappers; raises ReadError for anything else."""
    root = document.root
    inner = root.child("domain") if root.tag in WRAPPERS else root
    if inner is None or inner.tag != "domain":
        raise ReadError(
            f"it is not a libvirt domain: its root is <{root.tag[:40]}>", hint="`virsh dumpxml NAME` prints a domain"
        )
    return inner


def threads_in(root: Element) -> tuple[DomainThread, ...]:
    """Return the IOThreads: those listed by id, and up to `<iothreads>` more, with the lowest free numbers."""
    count = root.child("iothreads")
    wanted = number(count.text, count, "iothreads") if count is not None else 0
    if wanted > THREADS_MAX:
        raise ReadError(f"line {count.line if count else 0}: {wanted} IOThreads are more than a host can have")
    listed = {}
    for one in root.all("iothreadids/iothread"):
        poll, identity = one.child("poll"), attribute(one, "id")
        if identity is not None:
            polls = None if poll is None else attribute(poll, "max")
            listed[identity] = DomainThread(number=identity, poll_max_ns=polls)
    free = (one for one in range(1, wanted + len(listed) + 1) if one not in listed)
    for _ in range(wanted - len(listed)):
        one_more = next(free)
        listed[one_more] = DomainThread(number=one_more)
    return tuple(listed[identity] for identity in sorted(listed))


def target_of(disk: Element) -> str:
    """Return the name of a disk; empty for one without."""
    return disk.value("target", "dev") or ""


def bus_of(disk: Element) -> str | None:
    """Return the bus of a disk: where none is written, the one that libvirt takes from its name."""
    prefixes = (bus for prefix, bus in _GUEST_PREFIXES.items() if target_of(disk).startswith(prefix))
    return disk.value("target", "bus") or next(prefixes, None)


def attribute(element: Element, name: str) -> int | None:
    """Return an attribute that is a number, None where it is not there; raises ReadError."""
    text = element.get(name)
    return None if text is None else number(text, element, name)


def number(text: str, element: Element, name: str) -> int:
    """Return a whole number of an element; raises ReadError with its line."""
    if not text.isascii() or not text.isdecimal() or len(text) > 20:
        raise ReadError(f"line {element.line}: {name}={text[:40]!r} is not a whole number")
    return int(text)
