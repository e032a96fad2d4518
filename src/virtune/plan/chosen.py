# SPDX-License-Identifier: Apache-2.0
"""The effective value of each option (the first layer that gives one, else the default) and its origin."""

from collections.abc import Mapping
from dataclasses import replace

from virtune.model.option import ChosenOption, Provenance, value_text
from virtune.model.study_options import ONE_QUESTION, OPTIONS, StudyOptions, options_of, was_said

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
