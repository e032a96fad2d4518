# SPDX-License-Identifier: Apache-2.0
"""Verify settings on the running processes."""
