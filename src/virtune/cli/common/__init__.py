# SPDX-License-Identifier: Apache-2.0
"""What several verbs share: options, output, progress, the end of a run."""
