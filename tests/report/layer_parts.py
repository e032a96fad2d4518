# SPDX-License-Identifier: Apache-2.0
"""Layers of a request's time."""

from virtune.model.live import Layers, RequestLayer

LAYERS = Layers(
    way="export",
    rounds=3,
    total_ns=100_000.0,
    layers=(
        RequestLayer(boundary="application", label="load generator", mean_ns=20_000.0, low_ns=18_000.0,
                     high_ns=22_000.0, in_flight=4.0, share=0.2),
        RequestLayer(boundary="device", label="host block layer and device", mean_ns=80_000.0, low_ns=None,
                     high_ns=None, in_flight=16.0, share=0.8),
    ),
    idle=12.0,
)  # fmt: skip
