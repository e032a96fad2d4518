# SPDX-License-Identifier: Apache-2.0
"""A host for a terminal: its facts, its check, its knobs."""
