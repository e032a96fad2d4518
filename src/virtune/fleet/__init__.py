# SPDX-License-Identifier: Apache-2.0
"""Many hosts: which there are, and how they are reached over the system's own SSH."""
