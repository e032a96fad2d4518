# SPDX-License-Identifier: Apache-2.0
"""This host, its QEMU and its fio, read into facts."""
