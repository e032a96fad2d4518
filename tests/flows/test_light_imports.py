# SPDX-License-Identifier: Apache-2.0
"""What reads and compares results does not wait for libraries that it may not need."""

import subprocess
import sys


def test_results_are_read_without_scipy_pydantic_and_a_databases_library() -> None:
    program = (
        "import sys, virtune.flows.stored.import_results; print({'scipy', 'pydantic', 'sqlalchemy'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
