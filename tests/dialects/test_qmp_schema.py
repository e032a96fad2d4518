# SPDX-License-Identifier: Apache-2.0
"""QEMU's schema, walked without the names of its types: what is found, what is absent, in which words."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtune.dialects.qemu.answers import answer_properties, answer_schema, entities, find_member
from virtune.model.knob import AskDevice, AskObject, AskSchema, Support

SCHEMA: list[dict[str, Any]] = [
    {"name": "blockdev-add", "meta-type": "command", "arg-type": "0", "ret-type": "9"},
    {"name": "blockdev-create", "meta-type": "command", "arg-type": "5", "ret-type": "9"},
    {"name": "SHUTDOWN", "meta-type": "event", "arg-type": "0"},
    {
        "name": "0",
        "meta-type": "object",
        "members": [{"name": "driver", "type": "1"}, {"name": "cache", "default": None, "type": "2"}],
        "tag": "driver",
        "variants": [{"case": "file", "type": "3"}, {"case": "raw", "type": "8"}],
    },
    {"name": "1", "meta-type": "enum", "members": [{"name": "file"}, {"name": "raw"}], "values": ["file", "raw"]},
    {"name": "2", "meta-type": "object", "members": [{"name": "direct", "default": None, "type": "bool"}]},
    {
        "name": "3",
        "meta-type": "object",
        "members": [
            {"name": "filename", "type": "str"},
            {"name": "aio", "default": None, "type": "4"},
            {"name": "x-check", "default": None, "type": "bool", "features": ["unstable"]},
        ],
    },
    {"name": "4", "meta-type": "enum", "values": ["threads", "native"]},
    {"name": "5", "meta-type": "object", "members": [{"name": "options", "type": "0"}]},
    {"name": "6", "meta-type": "alternate", "members": [{"type": "str"}, {"type": "0"}]},
    {"name": "[1]", "meta-type": "array", "element-type": "1"},
    {"name": "8", "meta-type": "object", "members": [{"name": "file", "type": "6"}, {"name": "list", "type": "[1]"}]},
    {"name": "9", "meta-type": "object", "members": []},
    {"name": "str", "meta-type": "builtin", "json-type": "string"},
    {"name": "bool", "meta-type": "builtin", "json-type": "boolean"},
]
KNOWN = entities(SCHEMA)


@pytest.mark.parametrize(
    ("ask", "kind", "values"),
    [
        (AskSchema(command="blockdev-add", member="driver"), "enum", ("file", "raw")),
        (AskSchema(command="blockdev-add", member="aio", variant="file"), "enum", ("threads", "native")),
        (AskSchema(command="blockdev-add", member="cache.direct", variant="file"), "boolean", ()),
        (AskSchema(command="blockdev-create", member="options.aio", variant="file"), "enum", ("threads", "native")),
        (AskSchema(command="blockdev-add", member="file", variant="raw"), "alternate", ()),
        (AskSchema(command="blockdev-add", member="file.driver", variant="raw"), "enum", ("file", "raw")),
        (AskSchema(command="blockdev-add", member="list", variant="raw"), "list", ()),
        (AskSchema(command="blockdev-add", member="cache"), "object", ()),
    ],
)
def test_a_member_is_found_by_its_way(ask: AskSchema, kind: str, values: tuple[str, ...]) -> None:
    member = find_member(KNOWN, ask)
    assert member is not None
    assert (member.kind, member.values) == (kind, values)


@pytest.mark.parametrize(
    "ask",
    [
        AskSchema(command="blockdev-remove", member="driver"),
        AskSchema(command="SHUTDOWN", member="driver"),
        AskSchema(command="blockdev-add", member="aio"),
        AskSchema(command="blockdev-add", member="aio", variant="raw"),
        AskSchema(command="blockdev-add", member="aio", variant="nbd"),
        AskSchema(command="blockdev-add", member="driver.more"),
        AskSchema(command="blockdev-add", member="cache.indirect"),
    ],
)
def test_what_a_build_does_not_have_is_absent(ask: AskSchema) -> None:
    assert find_member(KNOWN, ask) is None
    answer = answer_schema(ask, KNOWN, program="qemu")
    assert answer.standing is Support.ABSENT
    assert answer.detail.startswith(f"no {ask.command} ")


def test_an_answer_lists_the_values_and_where_they_stand() -> None:
    answer = answer_schema(AskSchema(command="blockdev-add", member="aio", variant="file"), KNOWN, program="qemu")
    assert answer.standing is Support.VALUES
    assert answer.values == ("threads", "native")
    assert answer.detail == "blockdev-add file aio: enum"


def test_an_answer_says_what_is_unstable() -> None:
    answer = answer_schema(AskSchema(command="blockdev-add", member="x-check", variant="file"), KNOWN, program="qemu")
    assert answer.standing is Support.EXISTS
    assert answer.detail.endswith(": boolean, unstable")


@pytest.mark.parametrize(
    ("reply", "standing", "detail"),
    [
        ({"return": [{"name": "packed", "type": "bool", "default-value": False}]}, "exists", ": bool, default off"),
        ({"return": [{"name": "packed", "type": "uint16", "default-value": 0}]}, "exists", ": uint16, default 0"),
        ({"return": [{"name": "packed", "type": "str"}]}, "exists", ": str"),
        ({"return": [{"name": "drive", "type": "str"}]}, "absent", "no packed of virtio-blk-pci"),
        ({"error": {"class": "DeviceNotFound", "desc": "not found"}}, "absent", "no virtio-blk-pci: not found"),
    ],
)
def test_lists_of_properties_are_read(reply: dict[str, Any], standing: str, detail: str) -> None:
    answer = answer_properties(AskDevice(device="virtio-blk-pci", property="packed"), reply, program="qemu")
    assert answer.standing == standing
    assert answer.detail.endswith(detail)


def test_objects_are_read_like_devices() -> None:
    reply = {"return": [{"name": "poll-max-ns", "type": "int"}]}
    answer = answer_properties(AskObject(object="iothread", property="poll-max-ns"), reply, program="qemu")
    assert (answer.standing, answer.detail) == (Support.EXISTS, "iothread poll-max-ns: int")


WORDS = st.sampled_from(
    ["blockdev-add", "blockdev-create", "driver", "file", "raw", "aio", "cache", "direct", "options"]
)


@given(WORDS, st.lists(WORDS, min_size=1, max_size=4), st.none() | WORDS)
def test_no_question_breaks_the_walk(command: str, way: list[str], variant: str | None) -> None:
    ask = AskSchema(command=command, member=".".join(way), variant=variant)
    found = find_member(KNOWN, ask)
    assert (answer_schema(ask, KNOWN, program="qemu").standing is Support.ABSENT) == (found is None)
