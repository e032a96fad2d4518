# SPDX-License-Identifier: Apache-2.0
"""QEMU's language: command lines, QMP commands, its schema (pure)."""
