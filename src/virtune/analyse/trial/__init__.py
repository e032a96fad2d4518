# SPDX-License-Identifier: Apache-2.0
"""One trial's evidence to its measurement and its validity (pure)."""
