# SPDX-License-Identifier: Apache-2.0
"""Change IOThreads, pins and schedulers in libvirt's domain XML, and the mapping of a device's queues to IOThreads
(pure).
"""

import re
from collections.abc import Mapping

from virtune.dialects.libvirt.domain import THREADS_MAX, domain_element, threads_in
from virtune.dialects.libvirt.words import BANDWIDTH, PINS, POLL_WORDS, POOL_WORDS, SCHEDULERS
from virtune.dialects.text.xml import (
    Document,
    Element,
    add_child,
    read_document,
    remove_attribute,
    remove_element,
    set_attribute,
    set_text,
)
from virtune.model.domain import SettingChange
from virtune.model.errors import PlanError

_BEFORE_CPUTUNE = ("defaultiothread", "iothreadids", "iothreads", "vcpus", "vcpu", "memory", "name")
_SCHEDULER = re.compile(r"(batch|idle)|(fifo|rr) ([1-9][0-9]?)")
_MAPPED = re.compile(r"(?:io(?:thread)?)?([1-9][0-9]{0,4})(?::([0-9]{1,4})(?:-([0-9]{1,4}))?)?")


def turn_count(document: Document, turn: SettingChange) -> bytes:
    """Set or take away how many IOThreads there are."""
    domain = domain_element(document)
    count = domain.child("iothreads")
    if turn.value is None:
        return document.text if count is None else remove_element(document, count)
    if int(turn.value) > THREADS_MAX:
        raise PlanError(f"{int(turn.value):,} IOThreads are more than a host can have")
    if count is not None:
        return set_text(document, count, turn.value)
    return add_child(
        document, domain, f"<iothreads>{turn.value}</iothreads>", after=("vcpus", "vcpu", "memory", "name")
    )


def turn_listed(document: Document, turn: SettingChange) -> bytes:
    """Set an IOThread's own settings: its polling, and the size of its pool of worker threads."""
    domain, number = domain_element(document), turn.at.partition(":")[2]
    found = next((one for one in domain.all("iothreadids/iothread") if one.get("id") == number), None)
    word = POLL_WORDS.get(turn.knob)
    holder = found if word is None or found is None else found.child("poll")
    word = word or POOL_WORDS[turn.knob]
    if turn.value is None:
        return document.text if holder is None else remove_attribute(document, holder, word)
    if holder is not None:
        return set_attribute(document, holder, word, turn.value)
    if number not in {str(one.number) for one in threads_in(domain)}:
        raise PlanError(f"there is no IOThread {number}", hint="set iothread.count first")
    attribute = f" {word}='{turn.value}'"
    inside = f"<poll{attribute}/>" if turn.knob in POLL_WORDS else ""
    if found is not None:
        return add_child(document, found, inside)
    start = f"<iothread id='{number}'"
    listed = f"{start}>{inside}</iothread>" if inside else f"{start}{attribute}/>"
    ids = domain.child("iothreadids")
    if ids is not None:
        return add_child(document, ids, listed, after=("iothread",))
    return add_child(document, domain, f"<iothreadids>{listed}</iothreadids>", after=("iothreads", "vcpu", "name"))


def turn_pin(document: Document, turn: SettingChange) -> bytes:
    """Pin the emulator, an IOThread or a vCPU to CPUs."""
    tag, what = PINS[turn.knob]
    named = {what: turn.at.partition(":")[2]} if what else {}
    return _tuned(document, tag, named, {"cpuset": turn.value} if turn.value is not None else None)


def turn_scheduler(document: Document, turn: SettingChange) -> bytes:
    """Give the emulator or an IOThread a scheduler: `fifo 1`, `batch`."""
    tag, what = SCHEDULERS[turn.knob]
    named = {what: turn.at.partition(":")[2]} if what else {}
    if turn.value is None:
        return _tuned(document, tag, named, None)
    said = _SCHEDULER.fullmatch(turn.value)
    if said is None:
        raise PlanError(f"{turn.value[:40]!r} is not a scheduler", hint="write fifo 1, rr 1, batch or idle")
    words = {"scheduler": said[1]} if said[1] else {"scheduler": said[2], "priority": said[3]}
    return _tuned(document, tag, named, words)


def turn_bandwidth(document: Document, turn: SettingChange) -> bytes:
    """Set what share of a CPU all IOThreads may take together."""
    domain, tag = domain_element(document), BANDWIDTH[turn.knob]
    found = domain.find(f"cputune/{tag}")
    if turn.value is None:
        return document.text if found is None else remove_element(document, found)
    if found is not None:
        return set_text(document, found, turn.value)
    document, tune = _cputune(document)
    return add_child(document, tune, f"<{tag}>{turn.value}</{tag}>")


def turn_mapping(document: Document, place: Element, turn: SettingChange) -> bytes:
    """Spread the queues of a disk or a controller over IOThreads: `1+2`, or `1:0-1+2:2-3` with the queues of each."""
    driver = place.child("driver")
    listed = driver.child("iothreads") if driver is not None else None
    if turn.value is None:
        return document.text if listed is None else remove_element(document, listed)
    xml = "<iothreads>" + "".join(_mapped(word) for word in turn.value.split("+")) + "</iothreads>"
    if driver is None:
        return add_child(document, place, f"<driver>{xml}</driver>")
    if listed is None:
        return add_child(document, driver, xml)
    return document.text[: listed.start] + xml.encode() + document.text[listed.end :]


def _mapped(word: str) -> str:
    said = _MAPPED.fullmatch(word)
    if said is None:
        raise PlanError(f"{word[:40]!r} is not an IOThread", hint="write 1+2, or 1:0-1+2:2-3 with the queues of each")
    number, first, last = said.groups()
    if first is None:
        return f"<iothread id='{number}'/>"
    queues = range(int(first), int(last or first) + 1)
    return f"<iothread id='{number}'>{''.join(f'<queue id={one!r}/>' for one in map(str, queues))}</iothread>"


def _tuned(document: Document, tag: str, named: Mapping[str, str], words: Mapping[str, str] | None) -> bytes:
    """Set the attributes of one element of `<cputune>`, or take the element away."""
    tune = domain_element(document).child("cputune")
    found = None
    for one in tune.children if tune is not None else ():
        if one.tag == tag and all(one.get(name) == value for name, value in named.items()):
            found = one
    if words is None:
        return document.text if found is None else remove_element(document, found)
    if found is not None and len(words) == 1:
        ((name, value),) = words.items()
        return set_attribute(document, found, name, value)
    if found is not None:
        document = read_document(remove_element(document, found))
    said = "".join(f" {name}='{value}'" for name, value in {**named, **words}.items())
    document, tune = _cputune(document)
    return add_child(document, tune, f"<{tag}{said}/>", after=(tag, "emulatorpin", "vcpupin"))


def _cputune(document: Document) -> tuple[Document, Element]:
    """Return the `<cputune>` of a domain, which is made where it is missing."""
    domain = domain_element(document)
    tune = domain.child("cputune")
    if tune is None:
        document = read_document(add_child(document, domain, "<cputune/>", after=_BEFORE_CPUTUNE))
        tune = domain_element(document).child("cputune")
        assert tune is not None  # noqa: S101 - written the line before
    return document, tune
