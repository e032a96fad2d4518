# SPDX-License-Identifier: Apache-2.0
"""Rigs: bring a Stack up, load it, watch it, take it down."""
