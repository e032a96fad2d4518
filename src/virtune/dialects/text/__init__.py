# SPDX-License-Identifier: Apache-2.0
"""Parsers of configuration text that keep the position of everything, so that it can be altered in place (pure)."""
