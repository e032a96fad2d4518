# SPDX-License-Identifier: Apache-2.0
"""Arms: which stacks are compared, read from `--set`, `--vary` and `--arm` or from a plan file. And the effective
value of each option (the first layer that gives one, else the default) with its origin.

    --set disk.format=qcow2                     turns a knob of the base, which every arm starts from
    --vary disk.aio=threads,native,io_uring     one arm per value; several --vary give all combinations
    --arm fast:disk.aio=native,disk.cache=none  one arm with a name; `--arm same:` is the base again
    rig=metal                                   may stand where a knob may: the same load without QEMU
    rig=vhost-user                              short for rig=storage-daemon,disk.export=vhost-user-blk
    rig=libvirt:NAME                            an existing libvirt domain, which runs

Without a name for it, the first arm is the baseline.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product

from virtune.fio.workloads import check_name
from virtune.model.contradictions import contradictions
from virtune.model.errors import PlanError
from virtune.model.knob import Choice, Knob, describe_domain
from virtune.model.knobs import BY_ID, TURNED, matching
from virtune.model.rig import OF_PASSED, PASSED_KNOB, RIGS, RigWord, read_rig, rig_words, rig_words_with_where
from virtune.model.stack import Stack, with_setting
from virtune.model.study import Arm
from virtune.model.study_options import (
    ONE_QUESTION,
    OPTIONS,
    ChosenOption,
    NamedArm,
    Provenance,
    StudyOptions,
    options_of,
    value_text,
    was_said,
)
from virtune.model.text import did_you_mean, quoted

_KNOB_AT = {".".join(knob.place): knob.id for knob in BY_ID.values() if knob.place}
_PLACE = re.compile(r"\b(?:pins|device|machine)\.\w+|^\w+(?= belongs to )")
"""Where a Stack's contradictions name its own attributes instead of knobs."""

Value = str | int | bool
Setting = tuple[str, str]

ARMS_MAX = 1000
"""The most arms of one study; more are a search, not a comparison."""

_SPEAKING = re.compile(r"[a-z][a-z0-9_-]{2,}", re.ASCII)
_MUTE = frozenset({"off", "none", "auto", "full"})

NAME_LONGEST = 100
"""No knob's id is longer; the time to find the nearest one grows with the square of its length."""


def parse_setting(text: str) -> tuple[Knob, Value]:
    """Read `disk.aio=native` into the knob and its value; raises PlanError with the nearest id or the domain."""
    knob_id, value = _split(text)
    knob = _knob(knob_id)
    return knob, _read(knob, value)


def apply_settings(base: Stack, texts: Sequence[str]) -> tuple[Stack, tuple[Setting, ...]]:
    """Apply the settings of `texts` to a stack; return it with the settings by knob id, in the given order.

    Raises PlanError for a knob that is unknown, cannot be set yet, is given twice or gets a wrong value.
    """
    stack = base
    settings: dict[str, str] = {}
    for text in texts:
        name, value = _split(text)
        turn, known = _turn(name, value)
        if known in settings:
            raise PlanError(f"{known} is set twice")
        stack = turn(stack)
        settings[known] = value
    rig = _named_rig(tuple(settings.items()))
    if rig is not None and rig.export is not None and "disk.export" in settings:
        raise PlanError(
            f"rig={settings['rig']} says what disk.export is, so both cannot be set",
            hint=f"rig={settings['rig']} is short for rig={rig.kind.name},disk.export={rig.export}",
        )
    return stack, tuple(settings.items())


def base_stack(texts: Sequence[str]) -> tuple[Stack, tuple[Setting, ...]]:
    """Read the `--set` words into the stack that every arm starts from."""
    return apply_settings(Stack(), texts)


def arms_from_vary(base: Stack, texts: Sequence[str], *, settings: tuple[Setting, ...] = ()) -> tuple[Arm, ...]:
    """Make an arm for every combination of `disk.aio=threads,native`; `settings` are those of the base.

    Arms are named by their values (`native`, `native+qcow2`), and where a value alone is ambiguous, by knob and value
    (`cache=none+discard=unmap`). Two equal stacks are refused: a value was given twice.
    """
    varied = [_values(text) for text in texts]
    names = [name for name, _ in varied]
    if len(set(names)) < len(names):
        raise PlanError(
            f"{next(n for n in names if names.count(n) > 1)} is varied twice", hint="list its values once"
        )
    if (count := math.prod(len(values) for _, values in varied)) > ARMS_MAX:
        raise PlanError(f"{count:,} arms are more than {ARMS_MAX:,}", hint="vary fewer knobs or values at once")
    label = labels(varied)
    arms = []
    for choice in product(*(values for _, values in varied)):
        own = tuple(zip(names, choice, strict=True))
        arms.append(_arm(label(own), [f"{name}={value}" for name, value in own], base, settings))
    return check_arms(arms, distinct=True)


def arm_from_text(text: str, base: Stack | None = None, *, settings: tuple[Setting, ...] = ()) -> Arm:
    """Read `NAME:knob=value,knob=value`; `NAME:` alone is the base stack.

    Raises PlanError naming the arm when something of it is wrong.
    """
    name, colon, words = text.partition(":")
    if not colon:
        raise PlanError(f"unknown arm {quoted(text)}", hint="write NAME:knob=value,knob=value, or NAME: for the base")
    return make_arm(name.strip(), [word for word in words.split(",") if word.strip()], base, settings=settings)


def arm_as_written(written: str | NamedArm, base: Stack, *, settings: tuple[Setting, ...]) -> Arm:
    """Read an arm of the command line (`NAME:knob=value`), or one of a plan file."""
    if isinstance(written, str):
        return arm_from_text(written, base, settings=settings)
    name, words = written
    return make_arm(name, words, base, settings=settings)


def make_arm(
    name: str, texts: Sequence[str], base: Stack | None = None, *, settings: tuple[Setting, ...] = ()
) -> Arm:
    """Make the arm of that name: the base with the settings of `texts` applied."""
    check_name(name, "an arm")
    try:
        arm = _arm(name, texts, base or Stack(), settings)
    except PlanError as error:
        raise PlanError(f"arm {name}: {error.message}", hint=error.hint) from error
    return check_arms([arm])[0]


def objections(stack: Stack) -> tuple[str, ...]:
    """Return the contradictions of this stack, with the knobs' names as users know them."""
    return tuple(_PLACE.sub(lambda found: _KNOB_AT.get(found[0], found[0]), text) for text in contradictions(stack))


def check_arms(arms: Sequence[Arm], *, distinct: bool = False) -> tuple[Arm, ...]:
    """Refuse arms with the same name or an impossible stack; `distinct` refuses equal stacks as well.

    Equal stacks under different names are a valid A/A test.
    """
    if len({arm.stack.kind.measures for arm in arms}) > 1:
        raise PlanError("simulated arms cannot be compared with measured ones", hint="give every arm the same rig")
    seen: dict[Stack, str] = {}
    names: set[str] = set()
    for arm in arms:
        found = objections(arm.stack)
        if found:
            raise PlanError(f"arm {arm.name}: {found[0]}", hint="; ".join(found[1:]) or None)
        if arm.name in names:
            raise PlanError(f"two arms are named {arm.name}", hint="give each --arm its own name")
        if distinct and arm.stack in seen:
            hint = "to compare a stack with itself, name both: --arm a: --arm b:"
            raise PlanError(f"the arms {seen[arm.stack]} and {arm.name} are the same stack", hint=hint)
        names.add(arm.name)
        seen.setdefault(arm.stack, arm.name)
    return tuple(arms)


def choose_baseline(arms: Sequence[Arm], name: str | None = None) -> str:
    """Return the baseline's name: the one asked for, else the first arm; raises PlanError when it is none of them."""
    if not arms:
        raise PlanError("a study needs an arm", hint="name stacks by --arm, or vary a knob by --vary")
    names = [arm.name for arm in arms]
    if name is None:
        return names[0]
    if name not in names:
        hint = did_you_mean(name, names) or f"the arms are {', '.join(names[:20])}"
        raise PlanError(f"unknown arm {quoted(name)} as baseline", hint=hint)
    return name


def _split(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        known = next((knob for knob in TURNED if knob.id == name.strip()), None)
        raise PlanError(f"{quoted(text)} is not knob=value", hint=f"write {_example(known)}")
    return name.strip(), value.strip()


def _example(knob: Knob | None) -> str:
    if knob is None:
        return "disk.aio=native"
    values = knob.domain.values[1] if isinstance(knob.domain, Choice) else f"..., {describe_domain(knob.domain)}"
    return f"{knob.id}={values}"


def _knob(name: str) -> Knob:
    if len(name) > NAME_LONGEST:
        raise PlanError(f"there is no knob {quoted(name)}", hint="`virtune host knobs` lists them all")
    found = matching(name)
    if len(found) > 1:
        so_called = [knob.id for knob in TURNED if knob.id.endswith(f".{name}")]  # of `iothread` a disk has its own
        ids = [*so_called, *(knob.id for knob in found)]
        raise PlanError(f"{quoted(name)} means several knobs", hint=f"one of {', '.join(ids[:12])}")
    return found[0]


def _read(knob: Knob, text: str) -> Value:
    try:
        return knob.read(text)
    except ValueError as error:
        hint = (
            did_you_mean(text, describe_domain(knob.domain).split(" | "))
            or f"{knob.id}: {describe_domain(knob.domain)}"
        )
        raise PlanError(f"{knob.id}: {error}", hint=hint) from error


def _turn(name: str, text: str) -> tuple[Callable[[Stack], Stack], str]:
    """Return the function that sets a knob, or the rig, to a value, and the knob's id."""
    if name == "rig":
        _rig(text)
        return (lambda stack: _on_rig(stack, text)), "rig"
    knob = _knob(name)
    value = _read(knob, text)
    if not knob.place:
        room = knob.id.partition(".")[0]
        others = ", ".join(one.id for one in TURNED if one.id.startswith(f"{room}."))
        so_far = f"; of {room} it can set {others}" if others else ""
        raise PlanError(
            f"{knob.id} is documented, but virtune cannot set it yet",
            hint=f"`virtune host knobs {knob.id}` shows each system's spelling{so_far}",
        )
    return (lambda stack: with_setting(stack, knob, value)), knob.id


def _rig(text: str) -> RigWord:
    """Read a rig's name, such as `qemu` or `libvirt:web1`; raises PlanError for an unknown one."""
    found = read_rig(text)
    if found is None and text.partition(":")[0] in RIGS and RIGS[text.partition(":")[0]].needs_where:
        raise PlanError(f"rig={text} names no domain", hint="`virsh list` shows those that run; libvirt:NAME")
    if found is None:
        rigs = (*rig_words(), *rig_words_with_where())
        raise PlanError(f"unknown rig {quoted(text)}", hint=did_you_mean(text, rig_words()) or " | ".join(rigs))
    return found


def _on_rig(stack: Stack, text: str) -> Stack:
    word = _rig(text)
    stack = replace(stack, rig=word.kind.name, domain=word.where)
    return stack if word.export is None else replace(stack, export=word.export)


def _values(text: str) -> tuple[str, tuple[str, ...]]:
    name, words = _split(text)
    values = tuple(value.strip() for value in words.split(","))
    if "" in values:
        raise PlanError(f"{quoted(text)} has an empty value", hint="write disk.aio=threads,native")
    known = {_turn(name, value)[1] for value in values}
    if len(set(values)) < len(values):
        raise PlanError(f"{name} has a value twice", hint="to compare a stack with itself: --arm a: --arm b:")
    return known.pop(), values


def _arm(name: str, texts: Sequence[str], base: Stack, settings: tuple[Setting, ...]) -> Arm:
    """Apply an arm's settings. The base's settings of QEMU's disk are dropped for an arm on metal, which has no QEMU,
    and for one whose guest drives a real disk itself.

    Another rig or export than the base's replaces `rig=vhost-user`, which sets both.
    """
    own = apply_settings(Stack(), texts)[1]
    named = {key for key, _ in own}
    rig, base_rig = _named_rig(own), _named_rig(settings)
    kept = None if rig is None or rig.kind.has_qemu else rig.kind.applies
    kept = OF_PASSED | {"rig"} if PASSED_KNOB in named else kept  # what an arm takes over from its base, None for all
    if kept is not None:
        settings = tuple(pair for pair in settings if pair[0] in kept)
        base = apply_settings(Stack(), [f"{name}={value}" for name, value in settings])[0]
    elif rig is not None and rig.export is not None:
        settings = tuple(pair for pair in settings if pair[0] != "disk.export")
    elif base_rig is not None and base_rig.export is not None and named & {"rig", "disk.export"}:
        base = replace(base, export=Stack().export)
        settings = tuple(pair for pair in settings if pair[0] != "rig")
    stack = apply_settings(base, texts)[0]
    return Arm(name=name, stack=stack, settings=(*(pair for pair in settings if pair[0] not in named), *own))


def _named_rig(settings: Sequence[Setting]) -> RigWord | None:
    text = dict(settings).get("rig")
    return None if text is None else read_rig(text)


def labels(varied: Sequence[tuple[str, tuple[str, ...]]]) -> Callable[[Sequence[Setting]], str]:
    """Choose the names of combinations: values only where these are unambiguous, else knob and value."""
    values = [value for _, several in varied for value in several]
    short = [name.rpartition(".")[2] for name, _ in varied]
    names = dict(zip((name for name, _ in varied), short, strict=True)) if len(set(short)) == len(short) else {}
    if len(set(values)) == len(values) and all(_SPEAKING.fullmatch(value) and value not in _MUTE for value in values):
        return lambda own: "+".join(value for _, value in own)
    return lambda own: "+".join(f"{names.get(name, name)}={value}" for name, value in own)


Sources = Mapping[str, Provenance]


def layered(*layers: tuple[Provenance, StudyOptions]) -> tuple[StudyOptions, dict[str, Provenance]]:
    """Merge layers of options, an earlier one over a later one, and return the values with their origins."""
    options, sources = StudyOptions(), dict[str, Provenance]()
    for provenance, layer in layers:
        said = {name: getattr(layer, name) for name in OPTIONS if was_said(getattr(layer, name))}
        taken = {name for name in said if name in sources}
        if any(name in sources for name in ONE_QUESTION):
            taken |= set(ONE_QUESTION)
        new = {name: value for name, value in said.items() if name not in taken}
        options = replace(options, **new)
        sources |= dict.fromkeys(new, provenance)
    return options, sources


def recorded(
    verb: str, options: StudyOptions, sources: Sources, values: Mapping[str, object]
) -> tuple[ChosenOption, ...]:
    """Return the value of each option of a verb, as text, with its origin; options without a value are left out.
    `values` are the study's final values, where these depend on more than the options given.
    """
    found = []
    for name, row in options_of(verb).items():
        said = getattr(options, name)
        value = values.get(name, said if was_said(said) else row.default_for(verb))
        if was_said(value):
            text = value_text(row.takes, value)
            found.append(ChosenOption(name=name, value=text, source=sources.get(name, Provenance.DEFAULT)))
    return tuple(found)
