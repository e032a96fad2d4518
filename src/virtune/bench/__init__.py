# SPDX-License-Identifier: Apache-2.0
"""Bring a Stack up, load it, watch it, take it down."""
