# SPDX-License-Identifier: Apache-2.0
"""Access to guests: channels, programs, counters, loads."""
