# SPDX-License-Identifier: Apache-2.0
"""Rules for running domains: requested settings compared with those that the process has."""

from collections.abc import Iterator, Sequence

from virtune.advise.rule import rule
from virtune.model.domain import DomainDisk, cache_of
from virtune.model.finding import Need, Seen, Severity, Subject
from virtune.model.knob import Change
from virtune.model.stack import DIRECT_CACHES

COMPARED: tuple[str, ...] = (
    "bus",
    "format",
    "cache",
    "io",
    "discard",
    "detect_zeroes",
    "iothread",
    "mapping",
    "queues",
    "queue_size",
    "limits",
)
"""The attributes of a disk that are compared between the running and the next configuration."""

RING_OF_THE_LOOP = (10, 2)
"""Since QEMU 10.2 the event loop itself runs on io_uring, so a ring proves nothing about a disk."""


def differences(next_start: DomainDisk, live: DomainDisk, *, of: Sequence[str] = COMPARED) -> list[str]:
    """Return the differences of two descriptions of one disk: `cache: writeback now, none after a power-off`."""
    found = []
    for name in of:
        now, then = getattr(live, name), getattr(next_start, name)
        if now != then and not (name == "cache" and cache_of(live) == cache_of(next_start)):
            found.append(f"{name} {_word(now)} now, {_word(then)} after a power-off")
    return found


@rule(
    "R80",
    Severity.WARNING,
    needs=(Need.STATE,),
    takes=Change.POWEROFF,
    source="libvirt: the live and the inactive configuration",
)
def waits_for_a_power_off(subject: Subject) -> Iterator[Seen]:
    """The running VM and its configuration differ. A change of the configuration reaches the VM only when it is
    switched off and on; a reboot from within is not enough, since QEMU keeps its command line. What was set on the
    running VM alone is gone then.
    """
    if subject.running is None:
        return
    compared = [one for one in COMPARED if one != "limits"]  # of these R47 says more
    live = {disk.target: disk for disk in subject.running.live.disks}
    for disk in subject.disks:
        now = live.get(disk.target)
        changed = differences(disk, now, of=compared) if now is not None else ["it is not plugged in now"]
        if changed:
            yield Seen(at=disk, seen="; ".join(changed), advice="power the VM off and on when it suits")
    for target in sorted(live.keys() - {disk.target for disk in subject.domain.disks}):
        if live[target].holds_data:
            yield Seen(
                seen=f"{target} is plugged in now and gone after a power-off", advice="add it to the configuration"
            )


@rule(
    "R13",
    Severity.WARNING,
    needs=(Need.ENGINE, Need.QEMU),
    takes=Change.POWEROFF,
    source="knobs 10.6 (tested): /proc/PID/fd, /proc/PID/maps",
)
def engine_not_in_force(subject: Subject) -> Iterator[Seen]:
    """QEMU may fall back to worker threads without a message; results under the engine's name are then those of
    threads.
    """
    running = subject.running
    if running is None or running.rings is None or running.contexts is None:
        return
    old = subject.host.qemu is not None and subject.host.qemu < RING_OF_THE_LOOP
    for disk in running.live.disks:
        if disk.io == "io_uring" and disk.opened_here and running.rings == 0 and old:
            yield Seen(
                at=disk, seen="io=io_uring, and the process holds no io_uring", advice="look why; R12 lists causes"
            )
        if disk.io == "native" and disk.opened_here and running.contexts == 0:
            yield Seen(
                at=disk, seen="io=native, and the process has no AIO context", advice="look at fs.aio-nr, and why"
            )


@rule(
    "R81",
    Severity.WARNING,
    needs=(Need.OPENED,),
    takes=Change.POWEROFF,
    source="/proc/PID/fdinfo (O_DIRECT), QEMU's command line",
)
def cache_not_in_force(subject: Subject) -> Iterator[Seen]:
    """The image is open with another cache mode than the configuration says."""
    if subject.running is None:
        return
    shown = {disk.target: disk for disk in subject.running.disks}
    for disk in subject.running.live.disks:
        found = shown.get(disk.target)
        if found is None or found.direct is None:
            continue
        if found.direct != (cache_of(disk) in DIRECT_CACHES):
            how = "with" if found.direct else "without"
            yield Seen(
                at=disk,
                seen=f"cache={cache_of(disk)}, and the image is open {how} O_DIRECT",
                advice="somebody changed it by QMP, or the filesystem does not do O_DIRECT",
            )


def _word(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join("=".join(map(str, one)) if isinstance(one, tuple) else str(one) for one in value) or "unset"
    return "unset" if value is None else str(value)
