# SPDX-License-Identifier: Apache-2.0
"""The page of dialects: how each system's own language writes a knob, or why it cannot."""

from collections.abc import Iterator

from tools.pages.markdown import code, plain, table, whole
from virtune.dialects.language import DESCRIBED, Language
from virtune.dialects.languages import LANGUAGES
from virtune.model.knobs import KNOBS


def page() -> str:
    """Return the page."""
    return whole("Dialects", (*_preface(), *(line for one in LANGUAGES for line in _dialect(one))))


def _preface() -> Iterator[str]:
    yield "The languages in which `virtune audit` and `virtune apply advise` read the disks of"
    yield "VMs. A file's content says which it is, not its name. What is turned is changed in place, and everything"
    yield "else stays as it is byte for byte; what a language cannot say is refused with the reason.\n"
    yield "`virtune apply advise --set KNOB@DISK=VALUE FILE` shows a change in the language of the file.\n"
    rows = [(code(one.name), plain(one.title), str(len(one.says))) for one in LANGUAGES]
    yield from table(("language", "system", "knobs turned"), rows)
    known = [knob for knob in KNOBS if knob.layer in DESCRIBED]
    yield f"\nOf the {len(KNOBS)} knobs {len(known)} are about a VM's device, its block layer or its placement; the"
    yield "others belong to the guest, the host or the storage, and no configuration of a VM turns them.\n"


def _dialect(dialect: Language) -> Iterator[str]:
    yield f"## {plain(dialect.title)}\n"
    if not dialect.says:
        yield f"It is only read: {plain(dialect.refusal('disk.cache') or '')}.\n"
        return
    yield from table(("knob", "how it is written"), ((code(k), code(said)) for k, said in dialect.says.items()))
    refused: dict[str, list[str]] = {}
    for knob in KNOBS:
        because = dialect.refusal(knob.id)
        if because is not None and knob.layer in DESCRIBED:
            refused.setdefault(because, []).append(knob.id)
    yield "\nRefused:\n"
    for because, knobs in sorted(refused.items(), key=lambda one: len(one[1])):
        yield f"- {plain(because)}: {', '.join(map(code, knobs))}"
    yield ""
