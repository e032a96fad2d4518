# SPDX-License-Identifier: Apache-2.0
"""One verb each: where pure rooms and doors to the world meet."""
