# SPDX-License-Identifier: Apache-2.0
"""A result on one screen, and the plain report with everything."""
