# SPDX-License-Identifier: Apache-2.0
"""The page of remarks: every kind of them, of fio results, trials and hosts, and the gates."""

from collections.abc import Iterable, Iterator

from tools.pages.markdown import code, plain, table, whole
from tools.pages.numbers import numbers_in
from virtune.analyse.study import host_rules
from virtune.analyse.trial import derive, explain, gates, measure, rejection
from virtune.model import remark as kinds
from virtune.model.remark import GATE_BY_ID, GATES, Gate, RemarkKind, Weight

_WITH_NUMBERS = (explain, gates, derive, measure, rejection, host_rules)
_MEANINGS = {
    Weight.INVALID: "forbids conclusions; a trial that has one counts for no verdict",
    Weight.WARNING: "limits them",
    Weight.NOTE: "explains",
}


def page() -> str:
    """Return the page."""
    return whole("Remarks", (*_preface(), *_of_fio(), *_of_trials(), *_gates(), *_of_hosts(), *_numbers()))


def _preface() -> Iterator[str]:
    yield "What virtune says of numbers and of hosts, in words. The id of a remark is stable, its sentence is"
    yield "not. In JSON it stands under `remarks`, `together` (of `explain`) or `findings` (of `probe`). The advice"
    yield "here is the usual one; a case may have its own.\n"
    yield from table(("weight", "means"), ((weight.value, _MEANINGS[weight]) for weight in reversed(Weight)))


def _of_fio() -> Iterator[str]:
    yield "## Of a fio result\n"
    yield "`virtune explain` asks every rule. A rule speaks only of numbers that are there; where one is"
    yield "missing, it is silent. Of the whole result:\n"
    yield from _table((GATE_BY_ID["page-cache"], *kinds.OF_RESULTS))
    yield "Of every job group:\n"
    yield from _table((*kinds.OF_LOADS, GATE_BY_ID["rate-unmet"], GATE_BY_ID["saturated-cpu"]))
    yield "Of fio results beside one another:\n"
    yield from _table(kinds.OF_SEVERAL_RESULTS)


def _of_trials() -> Iterator[str]:
    kept_out = sorted(derive._OF_SINGLE_RUNS | derive._AT_THE_GATES)  # noqa: SLF001 - the page says what the rule does
    yield "## Of a trial\n"
    yield "`virtune compare` and `measure` ask the rules of a fio result for every trial. Of what they say,"
    yield "warnings and what is invalid are kept, except of runs that stand alone, and what the gates say (below):"
    yield f"{', '.join(map(code, kept_out))}. Where the counters show that reads never reached the device, a trial is"
    yield "`unserved`, or `page-cache` if the stack is not direct. The kernel's counters and the rig add:\n"
    yield from _table(kinds.OF_TRIALS)


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
            plain(gate.advice),
        )
        for gate in GATES
    )
    yield from table(("id", "what", "warning above", "invalid above", "where it is read", "why so", "advice"), rows)
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
    yield "What `virtune host probe` finds, the most severe first. An unknown fact is no finding.\n"
    yield from _table((*kinds.OF_HOSTS, GATE_BY_ID["io-limit"]))


def _table(shown: Iterable[RemarkKind]) -> Iterator[str]:
    yield from table(
        ("id", "weight", "means", "advice"),
        (
            (code(one.id), " or ".join(weight.value for weight in one.weights), plain(one.why), plain(one.advice))
            for one in shown
        ),
    )


def _numbers() -> Iterator[str]:
    yield "## The numbers behind the rules\n"
    rows = [row for module in _WITH_NUMBERS for row in numbers_in(module)]
    yield from table(("name", "value", "why"), ((code(name), f"{value:,}", plain(why)) for name, value, why in rows))
