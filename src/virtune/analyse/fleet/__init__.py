# SPDX-License-Identifier: Apache-2.0
"""What many hosts say together (pure): the mean and the next host, odd hosts, ranks, and what odd hosts share."""
