# SPDX-License-Identifier: Apache-2.0
"""Many trials to verdicts (pure)."""
