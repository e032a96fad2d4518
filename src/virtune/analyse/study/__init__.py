# SPDX-License-Identifier: Apache-2.0
"""From many trials to verdicts (pure)."""
