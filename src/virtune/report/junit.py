# SPDX-License-Identifier: Apache-2.0
"""Conditions as JUnit XML, for the dashboards of CI: one test case for each condition, workload and arm.

A breach is a failure. An undecided condition is skipped, with the reason: it is neither passed nor failed. The
figures of a guest under emulation are not comparable, and every message on them begins with that.
"""

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from virtune.model.result import Result
from virtune.model.verdict import Outcome, ThresholdResult
from virtune.report.pages.evidence import programs_of
from virtune.report.pages.result import sentence
from virtune.report.pages.study import host_line
from virtune.report.reproduce import command_again
from virtune.report.view import worth


def junit(result: Result, rulings: Sequence[ThresholdResult], facts: str = "") -> str:
    """Return the document; `facts` are those of the host, as JSON.

    Names may come from untrusted files: characters that XML does not allow are shown as `?`.
    """
    study = result.study
    suite = ET.Element(
        "testsuite",
        name=_xml(f"virtune {study.label} {study.id}" if study.id else "virtune compare"),
        tests=str(len(rulings)),
        failures=str(sum(ruling.outcome is Outcome.BREACHED for ruling in rulings)),
        errors="0",
        skipped=str(sum(ruling.outcome is Outcome.UNDECIDED for ruling in rulings)),
        timestamp=study.created.partition("+")[0],
    )
    limited = {one.name: said for one in study.compared if (said := worth(result, one.name))}
    properties = ET.SubElement(suite, "properties")
    ET.SubElement(properties, "property", name="host", value=_xml(host_line(study, facts, programs_of(result.arms))))
    if study.title:
        ET.SubElement(properties, "property", name="title", value=_xml(study.title))
    if command := command_again(study):
        ET.SubElement(properties, "property", name="command", value=_xml(command))
    if limited:
        value = _xml(f"{' / '.join(dict.fromkeys(limited.values()))} ({', '.join(limited)})")
        ET.SubElement(properties, "property", name="standing", value=value)
    for ruling in rulings:
        where = f"{ruling.comparison.workload}.{ruling.comparison.candidate}"
        case = ET.SubElement(suite, "testcase", classname=_xml(where), name=_xml(ruling.condition.text), time="0")
        limit = limited.get(ruling.comparison.workload)
        message = _xml(f"{limit}; {sentence(result, ruling)}" if limit else sentence(result, ruling))
        if ruling.outcome is Outcome.BREACHED:
            ET.SubElement(case, "failure", type="breached", message=message).text = message
        elif ruling.outcome is Outcome.UNDECIDED:
            ET.SubElement(case, "skipped", message=f"undecided: {message}")
        else:
            ET.SubElement(case, "system-out").text = message
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _xml(text: str) -> str:
    return "".join(character if character.isprintable() and character < "\ufffe" else "?" for character in text)
