# SPDX-License-Identifier: Apache-2.0
"""Results for people, as text (pure)."""
