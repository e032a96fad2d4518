# SPDX-License-Identifier: Apache-2.0
"""The pages of the knobs: one that lists all, and one for each layer with all that is known of them."""

from collections.abc import Iterator

from tools.pages.markdown import code, plain, whole
from virtune.model.knob import Knob, Layer, Risk, describe_domain
from virtune.model.knobs import KNOBS
from virtune.report.pages.knobs import CHANGES, EVIDENCE


def index() -> str:
    """Return the page that lists all."""
    return whole("Knobs", (*_preface(), *(line for layer in Layer for line in _listed(layer))))


def page(layer: Layer) -> str:
    """Return the page of a layer."""
    return whole(f"Knobs: {layer.value}", ("[All knobs](knobs.md), with what the words mean.\n", *_layer(layer)))


def name_of(layer: Layer) -> str:
    """Return the file name of a layer's page."""
    return f"knobs-{layer.value.lower().replace(' ', '-')}.md"


def _listed(layer: Layer) -> Iterator[str]:
    yield f"## [{_title(layer)}]({name_of(layer)})\n"
    yield "| knob | what it is | change | risk |"
    yield "|---|---|---|---|"
    for knob in _of(layer):
        name = f"[`{knob.id}`]({name_of(layer)}#{knob.id.replace('.', '')})"
        risk = "" if knob.risk is Risk.NONE else knob.risk.value
        yield f"| {name}{' **turned**' * bool(knob.place)} | {plain(knob.what)} | {knob.change.value} | {risk} |"
    yield ""


def _title(layer: Layer) -> str:
    return f"{layer.value[0].upper()}{layer.value[1:]}"


def _of(layer: Layer) -> Iterator[Knob]:
    return (knob for knob in KNOBS if knob.layer is layer)


def _preface() -> Iterator[str]:
    yield f"Everything that can be turned on the I/O path of a virtual disk: {len(KNOBS)} knobs, from the"
    yield "application in the guest down to the medium. `virtune host knobs NAME` shows the same, and asks the QEMU"
    yield "that is installed.\n"
    yield "A knob marked **turned** is one that virtune sets in the stacks it brings up (`--set ID=VALUE`); the"
    yield "others are explained. The number (K45) names the topic: knobs that belong together share it. Numbers"
    yield "that are quoted come from other people's machines: a direction and an order of magnitude, never a"
    yield "promise.\n"
    yield "How a knob is changed on a system that runs:\n"
    yield from (f"- **{change.value}**: {meaning}" for change, meaning in CHANGES.items())
    yield "\nWhat the evidence is worth: **tried** by hand, read in the **code** or a commit, **documented** by"
    yield "the project, said by **its author** in a patch or post, said by a **vendor** or blog,"
    yield "**unverified**.\n"


def _layer(layer: Layer) -> Iterator[str]:
    for knob in _of(layer):
        yield from _knob(knob)


def _knob(knob: Knob) -> Iterator[str]:
    yield f"## `{knob.id}`\n"
    yield f"{plain(knob.what)}\n"
    yield f"{plain(knob.why)}\n"
    turned = ", **turned**" if knob.place else ""
    yield f"- {knob.number}{turned}; values: {plain(describe_domain(knob.domain))}; default: {plain(knob.default)}"
    risk = "" if knob.risk is Risk.NONE else f"; risk: **{knob.risk.value}**. {plain(knob.risk_note)}"
    here = f" (in a guest of virtune's own: **{knob.in_guest.value}**)" if knob.in_guest is not None else ""
    yield f"- change: **{knob.change.value}**{here}{risk}"
    if knob.needs:
        yield f"- needs: {plain('; '.join(knob.needs))}"
    yield from (f"- {system}: {code(text)}" for system, text in knob.spelled.items())
    yield "- evidence:"
    yield from (f"  - {_evidence(line)}" for line in knob.source)
    yield ""


def _evidence(line: str) -> str:
    kind, _, text = line.partition(" ")
    words = (f"<{word}>" if word.startswith("https://") else plain(word) for word in text.split(" "))
    return f"{EVIDENCE[kind]}: {' '.join(words)}"
