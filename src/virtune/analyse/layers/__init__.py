# SPDX-License-Identifier: Apache-2.0
"""Where the time of a request goes, and what limits it: from the measurements of trials, or of a running VM under its
own load.
"""
