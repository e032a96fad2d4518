# SPDX-License-Identifier: Apache-2.0
"""Searches and sweeps for a terminal."""
