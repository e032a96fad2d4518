# SPDX-License-Identifier: Apache-2.0
"""The rigs `storage-daemon` and `vhost-user`: QEMU's block layer without a guest."""
