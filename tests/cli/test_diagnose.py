# SPDX-License-Identifier: Apache-2.0
"""`virtune diagnose` as a user calls it."""

import json

from jsonschema import Draft202012Validator
from tests.conftest import User
from tests.published import invalid_variants, schema

SHORT = ("--seconds", "1", "--ramp", "0", "--rounds", "2", "-q")


def test_a_stored_study_is_diagnosed_arm_by_arm(user: User) -> None:
    user.run("compare", "--rig", "simulated", "--vary", "disk.aio=threads,native", *SHORT)
    found = json.loads(user.run("diagnose", "--run", "last", "--json").stdout)
    judge = Draft202012Validator(schema("diagnose"))
    judge.validate(found)
    assert [what for what, changed in invalid_variants(found) if judge.is_valid(changed)] == []
    assert [one["disk"] for one in found["disks"]] == ["threads", "native"]
    assert {one["bottleneck"]["cause"] for one in found["disks"]} == {"undecidable"}, "a formula has no layers"
    assert {one["seconds"] for one in found["disks"]} == {1.0}, "the figures are those of one round"
    said = user.run("diagnose", "--run", "last").stdout
    assert "seen for 1.0 s in one of 2 rounds" in said
    assert "the study is simulated" in said
    assert "what limits it is undecidable  (in 2 of 2 rounds)" in said
    assert "next: " in said
    (one,) = json.loads(user.run("diagnose", "--run", "last:1", "--json").stdout)["disks"]
    assert one["bottleneck"]["of"] == 1
    assert "no measured trial 99" in user.run("diagnose", "--run", "last:99", status=None).stderr
    assert "no trial 'x'" in user.run("diagnose", "--run", "last:x", status=2).stderr


def test_what_is_to_be_diagnosed_must_be_said(user: User) -> None:
    assert "virtune diagnose --run last" in user.run("diagnose", status=2).stderr
    assert "one of VM" in user.run("diagnose", "sql1", "--run", "last", status=2).stderr
    assert "at least 1s" in user.run("diagnose", "sql1", "--seconds", "500ms", status=2).stderr
    said = user.run("diagnose", "--qmp", str(user.home / "none"), "--seconds", "1", status=3).stderr
    assert "no QEMU answers at" in said
