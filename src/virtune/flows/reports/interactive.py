# SPDX-License-Identifier: Apache-2.0
"""What makes the pictures of a page live: their specifications, and the script that draws them in the browser."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from virtune.report.charts.chart import Chart

_DRAW = """
const how = {mode: 'vega-lite', ast: true, actions: false, renderer: 'svg', logLevel: 1};
for (const [name, spec] of Object.entries(JSON.parse(document.getElementById('picture-data').text))) {
  const place = document.getElementById(name).querySelector('.drawing');
  const still = place.innerHTML;
  vegaEmbed(place, spec, how).catch(error => {
    place.innerHTML = still;  // the picture as it was printed says the same
    console.error(name, error);
  });
}
"""
"""`ast` lets Vega work without `eval`, which the page's policy forbids."""


@dataclass(frozen=True, slots=True)
class Live:
    """The parts of a page with live pictures: specifications as JSON, the script, and its hash as a policy has it."""

    data: str
    script: str
    policy: str


def live_parts(charts: Sequence[Chart]) -> Live:
    """Return the parts for these pictures; nothing in them can end the element that holds them."""
    import vl_convert

    specs = {chart.name: with_tools(chart.spec) for chart in charts}
    script = vl_convert.javascript_bundle(f"(() => {{{_DRAW}}})();")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Live(data=json.dumps(specs).replace("<", "\\u003c"), script=script, policy=f"'sha256-{digest}'")


def with_tools(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a specification whose marks tell their numbers, and whose curves can be zoomed and moved."""
    config = spec.get("config", {})
    spec = {key: value for key, value in spec.items() if key != "$schema"}  # the script may have a later one
    found = {**spec, "config": {**config, "mark": {**config.get("mark", {}), "tooltip": {"content": "data"}}}}
    layers = list(spec.get("layer", ()))
    for place, layer in enumerate(layers):
        kind = layer["mark"]["type"] if isinstance(layer["mark"], dict) else layer["mark"]
        if kind == "line" and "data" not in layer:
            layers[place] = {**layer, "params": [{"name": "zoom", "select": "interval", "bind": "scales"}]}
            return {**found, "layer": layers}
    return found
