# SPDX-License-Identifier: Apache-2.0
"""The published schemas: one module for each document that virtune writes or reads."""
