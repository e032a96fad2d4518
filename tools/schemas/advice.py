# SPDX-License-Identifier: Apache-2.0
"""The schema of advice: what `virtune advise --json` writes."""

from tools.schemas.audit import turn
from tools.schemas.parts import identity
from tools.schemas.shape import maybe, rows, table, text, written
from virtune.report.text.advice import SCHEMA


def schema() -> str:
    """Return the schema as text."""
    domain = table(
        "The advice for one domain.",
        {
            "origin": text("The file that it was read from, or the URI of its libvirt."),
            "domain": text("Its name."),
            "uuid": maybe(text("Its UUID; null where the file has none.")),
            "turns": rows("The changes; empty where nothing is to be changed.", {"$ref": "#/$defs/Turn"}),
            "diff": text("The same as a unified difference of the configuration."),
            "commands": rows("The same as command lines, where the system takes it so.", text("A command line.")),
            "warnings": rows(
                "Errors and warnings that `virtune audit` has of the changed configuration and had not before.",
                text("The rule, the place and the reason."),
            ),
            "left": rows("What is left alone, and why.", text("The place and the reason.")),
        },
    )
    body = table(
        "What `virtune advise --json` writes.",
        {"schema": identity(SCHEMA), "domains": rows("The domains, in the order in which they were read.", domain)},
    )
    return written(SCHEMA, "Advice for domains", body, {"Turn": turn()})
