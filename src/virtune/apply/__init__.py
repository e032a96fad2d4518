# SPDX-License-Identifier: Apache-2.0
"""Changes made to the real thing: journalled before they are made, checked after, undone on any failure."""
