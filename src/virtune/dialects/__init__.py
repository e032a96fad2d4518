# SPDX-License-Identifier: Apache-2.0
"""The configuration languages of hypervisors: read, write and alter them (pure)."""
