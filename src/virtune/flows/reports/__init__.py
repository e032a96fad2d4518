# SPDX-License-Identifier: Apache-2.0
"""What is stored, given to people and to other programs."""
