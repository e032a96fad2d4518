# SPDX-License-Identifier: Apache-2.0
"""`python -m virtune`."""

from virtune.cli import main

main()
