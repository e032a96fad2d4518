# SPDX-License-Identifier: Apache-2.0
"""The page of remarks: every rule of `explain`, of what a trial means, and of the host's judgement."""

import inspect
from collections.abc import Callable, Iterator
from types import ModuleType

from tools.pages.markdown import code, one_line, plain, table, whole
from tools.pages.said import Said, numbers_in, said_in
from virtune.analyse.study import host_rules as host
from virtune.analyse.trial import cache_rules as answered
from virtune.analyse.trial import compare_results as beside
from virtune.analyse.trial import derive, disks, gates
from virtune.analyse.trial import reading_rules as readings
from virtune.analyse.trial import rejection as rejects
from virtune.analyse.trial import validity_rules as doubts
from virtune.analyse.trial import warm_up as ramp
from virtune.analyse.trial.explain import LOAD_RULES, RESULT_RULES
from virtune.model import verification
from virtune.model.gate import GATES, Gate
from virtune.model.remark import Weight

_OF_FIO = (answered, doubts, readings)
_MEANINGS = {
    Weight.INVALID: "forbids conclusions; a trial that has one counts for no verdict",
    Weight.WARNING: "limits them",
    Weight.NOTE: "explains",
}


def page() -> str:
    """Return the page."""
    return whole(
        "Remarks", (*_preface(), *_of_fio(), *_beside(), *_of_trials(), *_gates(), *_of_hosts(), *_numbers())
    )


def _preface() -> Iterator[str]:
    yield "What virtune says of numbers and of hosts, in words. The id of a remark is stable, its sentence is"
    yield "not. In JSON it stands under `remarks`, `together` (of `explain`) or `findings` (of `probe`).\n"
    yield from table(("weight", "means"), ((weight.value, _MEANINGS[weight]) for weight in reversed(Weight)))


def _of_fio() -> Iterator[str]:
    yield "## Of a fio result\n"
    yield "`virtune explain` asks every rule. A rule speaks only of numbers that are there; where one is"
    yield "missing, it is silent.\n"
    said = [one for module in _OF_FIO for one in said_in(module)]
    documented: dict[str, list[str]] = {}
    rules: tuple[Callable[..., object], ...] = (*RESULT_RULES, readings.not_added, *LOAD_RULES)
    for rule in rules:
        identifier, meaning = _documented(rule)
        documented.setdefault(identifier, []).append(meaning)
    whole_result = {_documented(rule)[0] for rule in rules[: -len(LOAD_RULES)]}
    for identifier, texts in documented.items():
        asked = "Asked of the whole result." if identifier in whole_result else "Asked of every job group."
        yield from _section(identifier, said, [*texts, asked])
    for one in said:
        if one.id not in documented:
            by = one.function.strip("_").replace("_", "-")
            yield from _section(one.id, said, [f"Said by the rule of `{by}`, which see."])


def _documented(rule: Callable[..., object]) -> tuple[str, str]:
    """Part a rule's docstring into its id and its meaning."""
    identifier, _, meaning = inspect.cleandoc(rule.__doc__ or "").partition(": ")
    return identifier.strip("`"), meaning


def _section(identifier: str, said: list[Said], texts: list[str]) -> Iterator[str]:
    weights = [weight for one in said if one.id == identifier for weight in one.weights]
    if not weights:
        raise KeyError(f"the rule {identifier} is documented and never says anything")
    yield f"### `{identifier}`\n"
    yield f"**{'** or **'.join(dict.fromkeys(weights))}**\n"
    yield from (plain(text) + "\n" for text in texts)


def _beside() -> Iterator[str]:
    yield "## Of fio results beside one another\n"
    identifier, meaning = _documented(beside.beside)
    yield from _section(identifier, said_in(beside), [meaning])


def _of_trials() -> Iterator[str]:
    kept_out = sorted(derive._OF_SINGLE_RUNS | derive._AT_THE_GATES)  # noqa: SLF001 - the page says what the rule does
    yield "## Of a trial\n"
    yield "`virtune compare` and `measure` ask the rules of a fio result for every trial. Of what they say,"
    yield "warnings and what is invalid are kept, except of runs that stand alone, and what the gates say (below):"
    yield f"{', '.join(map(code, kept_out))}. The kernel's counters add:\n"
    yield from _said(derive)
    yield from _said(disks)
    yield "What was requested of a stack must be seen in every trial:\n"
    yield from _said(verification)
    yield from _said(gates)
    yield f"`page-cache`: {plain(one_line(derive._cached.__doc__ or ''))}\n"  # noqa: SLF001 - its documentation


def _gates() -> Iterator[str]:
    yield "## Gates\n"
    yield "What may disturb a trial beside the disk. A reading above the first limit is a warning with the gate's id,"
    yield "above the second one the trial is invalid: it is run again at once, at most twice, and all attempts are"
    yield "kept and counted. What cannot be read here passes.\n"
    rows = (
        (
            code(gate.id),
            gate.label,
            _limit(gate, gate.flag),
            _limit(gate, gate.invalid),
            plain(gate.source),
            plain(gate.why),
        )
        for gate in GATES
    )
    yield from table(("id", "what", "warning above", "invalid above", "where it is read", "why so"), rows)
    yield "A cause that disturbs one arm clearly more often than the others (Fisher's exact test), or most attempts"
    yield "of all arms, no longer rejects trials; it is reported under `pardons` instead.\n"


def _limit(gate: Gate, limit: float | None) -> str:
    if limit is None:
        return ""
    return {"share": f"{limit:.0%}", "count": f"{limit:g}", "1/s": f"{limit:g}/s", "s": f"{limit:g} s"}.get(
        gate.unit, f"{limit:+g} C" if limit else "its limit"
    )


def _of_hosts() -> Iterator[str]:
    yield "## Of a host\n"
    yield "What `virtune probe` finds, the most severe first. An unknown fact is no finding.\n"
    yield from _said(host)


def _said(module: ModuleType) -> Iterator[str]:
    """Set what a module says, the names of its numbers in italics."""
    yield from table(
        ("id", "weight", "says", "advice"),
        (
            (code(one.id), " or ".join(one.weights), _blanks(plain(one.text)), plain(one.advice))
            for one in said_in(module)
        ),
    )


def _blanks(text: str) -> str:
    return text.replace("{", "*").replace("}", "*")


def _numbers() -> Iterator[str]:
    yield "## The numbers behind the rules\n"
    rows = [row for module in (*_OF_FIO, derive, disks, gates, rejects, ramp, host) for row in numbers_in(module)]
    yield from table(("name", "value", "why"), ((code(name), f"{value:,}", plain(why)) for name, value, why in rows))
