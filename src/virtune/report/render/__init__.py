# SPDX-License-Identifier: Apache-2.0
"""How it is shown: tables and paragraphs at a terminal's width, intervals as bars of characters."""
