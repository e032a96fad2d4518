# SPDX-License-Identifier: Apache-2.0
"""Studies in the store: found, read, named, taken in from elsewhere."""
