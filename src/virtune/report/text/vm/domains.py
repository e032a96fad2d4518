# SPDX-License-Identifier: Apache-2.0
"""Domains and their disks, as text: configured (for the next start), running, and verified settings."""

from collections.abc import Iterator, Sequence

from virtune.model.domain import DomainDisk, cache_of
from virtune.model.finding import Finding, Subject, Unread
from virtune.model.text import printable


def page(found: Sequence[tuple[str, Subject, tuple[Finding, ...]]], unread: Sequence[Unread]) -> Iterator[str]:
    """Yield the lines of the page: each domain with its disks, and where the running VM differs from its
    configuration.
    """
    for origin, subject, findings in found:
        yield printable(f"{subject.domain.name}  {_state(subject)}  ({origin})")
        for disk in subject.domain.disks:
            yield printable(f"  {disk.target:<6} {_source(disk)}")
            yield printable(f"         {', '.join(_words(disk, subject))}")
        for finding in findings:
            place = f"{finding.at}: " if finding.at else ""
            yield printable(f"  {finding.rule.severity.value}: {place}{finding.seen.seen} ({finding.rule.id})")
        yield ""
    for lost in unread:
        yield printable(f"not read: {lost.origin}: {lost.because}")
    count = len(found)
    yield f"{count} domain{'' if count == 1 else 's'}" + (f"; {len(unread)} not read" if unread else "")


def _state(subject: Subject) -> str:
    running = subject.running
    if running is None:
        return "not running"
    return f"{running.state} ({running.reason}){f', pid {running.pid}' if running.pid else ''}"


def _source(disk: DomainDisk) -> str:
    kind = "" if disk.device == "disk" else f"{disk.device}, "
    return f"{kind}{disk.source.kind} {disk.source.name}".rstrip()


def _words(disk: DomainDisk, subject: Subject) -> Iterator[str]:
    yield f"bus {disk.bus}"
    if disk.source.kind == "none":
        return
    yield f"format {disk.format or 'raw'}"
    if disk.opened_here and subject.domain.runs_qemu:
        yield f"cache {cache_of(disk)}" + ("" if disk.cache else " (default)")
        yield f"io {disk.io or 'threads (default)'}"
        yield f"discard {disk.discard or 'ignore (default)'}"
    threads = subject.domain.threads_of(disk)
    yield f"IOThread {', '.join(map(str, threads))}" if threads else "main loop"
    for name, value in (("queues", disk.queues), ("queue_size", disk.queue_size)):
        if value is not None:
            yield f"{name} {value}"
    for shown in subject.running.disks if subject.running else ():
        if shown.target == disk.target and shown.direct is not None:
            yield f"verified: {'O_DIRECT' if shown.direct else 'page cache'}, aio {shown.aio or 'unknown'}"
