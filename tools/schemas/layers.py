# SPDX-License-Identifier: Apache-2.0
"""The schema of where the time of a request goes."""

from typing import get_args

from tools.schemas.shape import Schema, maybe, number, rows, table, text, whole, word
from virtune.model.layers import BOUNDARIES, Way

_ESXTOP = {
    "gavg_ns": "From when the guest's driver has handed a request over, where the virtqueue was seen, else from when"
    " QEMU took it off; until it was completed.",
    "qavg_ns": "The part of it that requests wait in the virtqueue.",
    "kavg_ns": "GAVG less DAVG: the hypervisor's part.",
    "davg_ns": "The host's block layer and device.",
}


def layers() -> Schema:
    """Return the schema of the layers of a request."""
    layer = table(
        "A layer. Together they add up to `total_ns`.",
        {
            "boundary": word("Where it begins.", BOUNDARIES),
            "label": text("What lies there, in words."),
            "mean_ns": number("Time of a request in it, in ns, the mean over rounds."),
            "low_ns": maybe(number("The lower end of its 95 % interval over rounds; null of one round.")),
            "high_ns": maybe(number("The upper end; null of one round.")),
            "share": number("Its part of `total_ns`, 0 to 1."),
            "in_flight": number("Requests in it at a time, on average (Little's law)."),
        },
    )
    return maybe(
        table(
            "Where the time of a request goes; null where nothing was seen below the load.",
            {
                "way": word("What lies between the load and the medium.", get_args(Way)),
                "top": word("Where they begin; of a live VM its application is not seen.", BOUNDARIES),
                "rounds": whole("Rounds that it rests on.", minimum=1),
                "total_ns": number("Mean time from `top` down, in ns: the latency that the load saw.", minimum=0),
                "layers": rows("From the top down.", layer, minItems=1),
                "idle": maybe(
                    number(
                        "I/Os that may be in flight and were not; null where the load is not held to a depth.",
                        minimum=0,
                    )
                ),
                "esxtop": table(
                    "In esxtop's terms, in ns; null where that was not seen.",
                    {name: maybe(number(words, minimum=0)) for name, words in _ESXTOP.items()},
                ),
                "reasons": rows("Why layers are not told apart.", text("A sentence.")),
            },
        )
    )
