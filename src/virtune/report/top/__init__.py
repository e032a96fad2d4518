# SPDX-License-Identifier: Apache-2.0
"""What `virtune top` shows: its tables, its screen of lines, its keys. Pure: samples and keys in, lines out."""
