# SPDX-License-Identifier: Apache-2.0
"""Every knob by every writer, of every language: it is written, or it is named with the reason why not.

The writers are those of a winner's lines (QEMU's command line, `qemu-img`, libvirt's disk) and those that change one
setting of an existing configuration. What a language says it writes is taken from its own table.
"""

import contextlib
import re

import pytest
from tests.flows.writers import places, samples, values_of
from tests.knob_values import EXAMPLES, stack_with

from virtune.dialects.language import Language
from virtune.dialects.languages import LANGUAGES
from virtune.flows.reports.render import spelled_stack
from virtune.model.domain import SettingChange
from virtune.model.errors import PlanError, ReadError
from virtune.model.knob import Knob, Switch
from virtune.model.knobs import BY_ID, KNOBS, TURNED
from virtune.model.rig import RIGS

PROGRAMS = ("qemu", "libvirt")
NO_REASON = "virtune has no words for it here"
CASES = [(rig, knob) for rig in ("storage-daemon", "qemu") for knob in sorted(RIGS[rig].applies)]


NEED_ANOTHER = {
    ("libvirt", "iothread.thread_pool_min"): (("iothread.thread_pool_max", "64"),),
    ("libvirt", "disk.throttle_iops_max"): (("disk.throttle_iops", "100"),),
    ("libvirt", "disk.throttle_bps_max"): (("disk.throttle_bps", "65536"),),
}
"""What a language takes only beside another setting."""


@pytest.mark.parametrize(("rig", "knob"), CASES)
def test_each_setting_is_in_the_lines_of_a_program_or_named_beside_them_with_the_reason(rig: str, knob: str) -> None:
    assert {one.id for one in TURNED} <= EXAMPLES.keys()
    stacks = stack_with(rig, knob)
    plain, found = ({one.program: one for one in spelled_stack(one, target=None, size_bytes=2**20)} for one in stacks)
    made = {name: one["qemu-img"].text if "qemu-img" in one else "" for name, one in (("", plain), (knob, found))}
    for program in PROGRAMS:
        one, named = found[program], [note for note in found[program].notes if f" {knob}=" in note]
        said = one.text != plain[program].text or made[""] != made[knob]
        assert not one.text or said != bool(named), f"{program}: {knob} is neither in the lines nor beside them"
        assert not any(NO_REASON in note for note in named), named


def written(language: Language, knob: Knob) -> bool:
    """Whether two values of a knob make two texts of one configuration; of a switch, one that differs from it.

    What was set there and is taken back reads as if it had only been taken back.
    """
    values, beside = values_of(knob), NEED_ANOTHER.get((language.name, knob.id), ())
    for text, domains in samples(language.name):
        for domain, at in ((one, at) for one in domains for at in places(one)):

            def turned(text: bytes, *to: tuple[str, str | None], name: str = domain.name, at: str = at) -> bytes:
                turns = [SettingChange(knob=one, at=at, value=value) for one, value in to]
                return language.alter(text, *turns, domain=name)

            made = {text: values[0]} if isinstance(knob.domain, Switch) else {}
            for value in values:
                with contextlib.suppress(PlanError, ReadError):
                    made.setdefault(turned(text, *beside, (knob.id, value)), value)
                if len(made) > 1:
                    with contextlib.suppress(PlanError):  # some must have a value
                        never = turned(text, *beside, (knob.id, None))
                        left = turned(next(one for one in made if one != text), (knob.id, None))
                        both = reading(language, left), reading(language, turned(never, (knob.id, None)))
                        assert both[0] == both[1], f"{knob.id} at {at!r}"
                    return True
    return False


def reading(language: Language, text: bytes) -> str:
    """What a configuration says, wherever it says it, and without elements that are empty now."""
    return re.sub(r"\bline=(\d+|None)|\bwritten=frozenset\(.*?\)", "", repr(language.domains(text)))


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda one: one.name)
def test_every_knob_is_written_by_a_language_or_refused_with_the_reason(language: Language) -> None:
    assert samples(language.name)
    assert {*language.says, *language.refusals, *language.implied} <= BY_ID.keys()
    assert not language.says.keys() & language.refusals.keys()
    unwritten = []
    for knob in KNOBS:
        because = language.refusal(knob.id)
        if knob.id in language.implied:
            continue
        if because is None:
            assert len(language.says[knob.id]) > 3, knob.id
            if not written(language, knob):
                unwritten.append(knob.id)
            continue
        assert len(because) > 10, knob.id
        text, (domain, *_) = samples(language.name)[0]
        with pytest.raises(PlanError, match="cannot be written into"):
            language.alter(text, SettingChange(knob=knob.id, at="", value="1"), domain=domain.name)
    assert not unwritten, f"{language.name} says that it writes them, and no two values made two texts: {unwritten}"
