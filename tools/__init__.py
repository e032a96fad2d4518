# SPDX-License-Identifier: Apache-2.0
"""Tools for working on virtune; nothing of this is installed."""
