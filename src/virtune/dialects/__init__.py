# SPDX-License-Identifier: Apache-2.0
"""A Stack written in each system's own language (pure)."""
