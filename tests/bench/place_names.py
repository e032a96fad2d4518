# SPDX-License-Identifier: Apache-2.0
"""Names of directories of every kind."""

import os

NAMES = {
    "hash": "foo#1", "only a hash": "#hash", "semicolon": "bar;x", "backslash": "back\\slash", "colon": "a:b",
    "escaped colon": "a\\:b", "comma": "a,b", "quote": "it's", "double quote": 'say "x"', "newline": "two\nlines",
    "space": "a b", "space at the end": "end ", "unicode": "größe-体", "percent": "50%d%s", "command": "$(touch x)",
    "variable": "${HOME}", "backtick": "`id`", "dash": "-rf", "option": "--rw=trim", "star": "*", "tab": "a\tb",
    "long": "x" * 200, "brackets": "[global]", "equals": "filename=foo", "ampersand": "a&b|c", "control": "a\x07b",
    "not text": os.fsdecode(b"\xff\xfe"),
}  # fmt: skip
