# SPDX-License-Identifier: Apache-2.0
"""The page of exit codes: virtune's exit codes, and the errors of each."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import virtune
from tools.pages.markdown import code, plain, table, whole
from virtune.model import errors
from virtune.model.errors import VirtuneError

MEANINGS: dict[int, str] = {
    0: "it ran, whatever the verdict; also when the reader of its output went away",
    1: "something failed that should have worked",
    2: "the command line, a plan, a workload or a file to read is wrong; nothing was run",
    3: "a precondition: this host or this target does not allow it, or something else runs than was asked for",
    4: "a threshold was breached: of `--fail-if`, where the whole interval of the change lies beyond the limit, or of"
    " `audit --fail-on`, where something at least as grave was found, or of `check --fail-if-noisier`",
    5: "a condition of `--fail-if` is undecided and none was breached: the interval of the change straddles the"
    " limit, or nothing can be concluded (one run each, too few rounds, a metric that was not measured); of `audit`,"
    " a domain was read that no rule can judge; of `check --fail-if-noisier`, five minutes seem to find so small a"
    " difference, and its trials are too few to exclude that they find only larger ones",
    130: "interrupted: what is finished is kept, and `virtune compare resume` goes on",
}
"""An error with another code stops the generation."""


def page() -> str:
    """Return the page."""
    return whole("Exit codes", _lines())


def _lines() -> Iterator[str]:
    for module in pkgutil.walk_packages(virtune.__path__, "virtune."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)  # errors are found below their class once their module is read
    kinds = sorted(_below(VirtuneError), key=lambda kind: (kind is not VirtuneError, kind.exit_code, kind.__name__))
    unknown = {kind.exit_code for kind in kinds} - MEANINGS.keys()
    if unknown:
        raise KeyError(f"exit codes without a meaning: {unknown}")
    yield "Every error is one sentence on stderr, then, where it helps, a hint with the next thing to type."
    yield "Data goes to stdout, everything else to stderr. `VIRTUNE_DEBUG=1` shows the traceback of such an"
    yield "error instead, and then the code is always 1.\n"
    yield from table(("code", "means"), ((str(number), plain(words)) for number, words in MEANINGS.items()))
    yield plain(inspect.cleandoc(errors.__doc__ or "").rpartition("\n\n")[2]) + "\n"
    yield "## Errors\n"
    named = (kind for kind in kinds if not kind.__name__.startswith("_"))  # the others are shown as what they are of
    yield from table(
        ("error", "code", "when"),
        ((code(kind.__name__), str(kind.exit_code), plain(_first(kind))) for kind in named),
    )


def _below(kind: type[VirtuneError]) -> Iterator[type[VirtuneError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _below(child)


def _first(kind: type[VirtuneError]) -> str:
    return " ".join((kind.__doc__ or "").partition("\n\n")[0].split())
