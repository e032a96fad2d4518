# SPDX-License-Identifier: Apache-2.0
"""From one trial's evidence to its measurement and its validity (pure)."""
