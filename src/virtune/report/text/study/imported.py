# SPDX-License-Identifier: Apache-2.0
"""The notes on a study of imported results."""

from collections.abc import Iterator

from rich.text import Text

from virtune.model.result import Result
from virtune.model.study import Study

_SHOWN_MAX = 60


def headline(result: Result) -> Text:
    """Describe what was read, in two lines."""
    study = result.study
    text = Text()
    text.append(f"{study.kind} {study.id}" if study.id else "comparison (not stored)", style="bold")
    total = len(study.trials)
    text.append(f"  {result.trials_done} of {total} results", style="" if result.trials_done == total else "yellow")
    runs = "one run" if study.rounds == 1 else f"up to {study.rounds} runs"
    text.append(f"\n{runs} of each arm and workload, measured elsewhere and imported")
    return text


def notes(study: Study) -> Iterator[str]:
    """Return the notes on figures that virtune did not measure itself."""
    if len(study.arms) > 1:
        yield (
            "the arms did not run in turn: the differences include other changes on their hosts between the runs, "
            "and the intervals do not"
        )
        different = [what for what in _different(study) if not _is_shape(what)]
        if different:
            yield f"the arms differ in other options too: {'; '.join(different)}"
    yield "virtune did not verify the settings of these runs, nor what else used the host meanwhile"


def warnings(study: Study) -> Iterator[str]:
    """Warn of workloads that differ between compared arms."""
    different = [what for what in _different(study) if _is_shape(what)]
    if different:
        yield f"the jobs differ, so a difference may be theirs and not the arms': {'; '.join(different)}"


def method(study: Study) -> Iterator[str]:
    """Describe how the figures were measured."""
    yield "The results were measured elsewhere; their raw files are stored unchanged. Figures are derived from fio's"
    yield "output by the same rules as virtune's own. Runs of one arm are repeats; no run of one arm belongs to a run"
    yield "of another. A difference is that of the means of logarithms; its interval is Welch's, which lets the arms"
    yield "spread differently, and a rank test (Mann-Whitney) must agree. Neither knows what changed on the hosts"
    yield f"between the arms' runs. 'same' means: the whole interval lies within a factor of {1 + study.margin:g}."


def _different(study: Study) -> Iterator[str]:
    """Name each option in which the arms' jobs differ, with the value of each arm; seeds differ by nature."""
    said = {arm.name: dict(arm.options) for arm in study.arms if arm.options}
    for name in dict.fromkeys(key for options in said.values() for key in options if key != "randseed"):
        values = {arm: options.get(name, "not shown") for arm, options in said.items()}
        if len(set(values.values())) > 1:
            yield f"{name} ({', '.join(f'{arm}: {_short(value)}' for arm, value in values.items())})"


def _is_shape(what: str) -> bool:
    """Whether an option belongs to a workload (`randread: iodepth`) and not to the arm."""
    return ": " in what.partition(" (")[0]


def _short(value: str) -> str:
    return value if len(value) <= _SHOWN_MAX else f"{value[: _SHOWN_MAX - 3]}..."
