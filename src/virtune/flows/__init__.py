# SPDX-License-Identifier: Apache-2.0
"""The flows, one per verb: they connect the pure rooms with the rooms that act (files, processes, the store)."""
