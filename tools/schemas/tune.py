# SPDX-License-Identifier: Apache-2.0
"""The schema of a search: what `virtune tune`, and `resume` and `show` of a search, write with `--json`."""

from tools.schemas.facts_words import FACTS
from tools.schemas.names import KEYS
from tools.schemas.typed import Typed, schema_of
from virtune.report.json.probe import ProbeDocument
from virtune.report.json.tune_parts import SCHEMA, TuneDocument


def schema() -> str:
    """Return the schema as text."""
    shapes = Typed(FACTS, named={ProbeDocument: "Facts"}, keys=KEYS)
    return schema_of(SCHEMA, "The result of a search", TuneDocument, shapes)
