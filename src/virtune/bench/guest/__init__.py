# SPDX-License-Identifier: Apache-2.0
"""Into a guest: channels, programs, counters, loads."""
