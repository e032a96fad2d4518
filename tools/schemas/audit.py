# SPDX-License-Identifier: Apache-2.0
"""The schema of an audit: what `virtune audit --json` writes."""

from tools.schemas.parts import identity
from tools.schemas.shape import Schema, maybe, rows, table, text, whole, word, written
from virtune.model.finding import Confidence, Severity
from virtune.model.knob import Change, Risk
from virtune.report.text.audit import SCHEMA


def schema() -> str:
    """Return the schema as text."""
    domain = table(
        "One domain.",
        {
            "origin": text("The file that it was read from, or the URI of its libvirt."),
            "domain": text("Its name."),
            "uuid": maybe(text("Its UUID; null where the file has none.")),
            "findings": rows("What was found, the most severe first.", {"$ref": "#/$defs/Finding"}),
        },
    )
    unread = table("Something that was not audited.", {"origin": text("Which file."), "because": text("Why not.")})
    body = table(
        "What `virtune audit --json` writes.",
        {
            "schema": identity(SCHEMA),
            "domains": rows("The domains that were audited, in the order in which they were read.", domain),
            "unread": rows("What could not be read.", unread),
        },
    )
    return written(SCHEMA, "An audit of domains", body, {"Finding": finding(), "Turn": turn()})


def turn() -> Schema:
    """Return the schema of a setting change."""
    return table(
        "One knob of one place, and the value that it is to have.",
        {
            "knob": text("The knob, as `virtune knobs` lists it."),
            "at": text("A disk (`vda`), an IOThread (`iothread:1`), a controller (`scsi:0`); empty for the domain."),
            "value": maybe(text("The value; null takes the setting away.")),
        },
    )


def finding() -> Schema:
    """Return the schema of a finding."""
    return table(
        "What one rule says about one place.",
        {
            "rule": text("The rule's id, which is stable; docs/reference/rules.md lists them.", pattern="^R[0-9]+$"),
            "name": text("The rule's name."),
            "severity": word("`error` and `warning` hold as they stand, `try` is worth measuring.", Severity),
            "confidence": word("How sure condition and direction are.", Confidence),
            "at": text("The disk (`vda`) or controller (`scsi:0`); empty for the domain."),
            "line": whole("The line of the configuration on which that begins.", minimum=1),
            "seen": text("What was seen."),
            "why": text("Why it matters."),
            "advice": text("What to do, or what to try."),
            "turns": rows("The knobs to turn for that; empty where no knob does it.", {"$ref": "#/$defs/Turn"}),
            "diff": text("The same as a unified difference of the configuration; empty where there is none."),
            "measure": maybe(text("The command that settles a thing worth trying.")),
            "measured": rows("What kept studies of this host say of the change.", text("A sentence.")),
            "takes": maybe(word("What it takes to apply it to a VM that runs.", Change)),
            "risk": word("The worst that applying it can do.", Risk),
            "source": text("Where the rule is known from."),
        },
    )
