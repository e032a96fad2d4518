# SPDX-License-Identifier: Apache-2.0
"""A read-only local page over the store: studies, a study's report, two side by side, a host over time, metrics."""
