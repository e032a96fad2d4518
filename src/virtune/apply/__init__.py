# SPDX-License-Identifier: Apache-2.0
"""Apply changes to libvirt domains: journalled before they are made, checked after, undone on any failure."""
