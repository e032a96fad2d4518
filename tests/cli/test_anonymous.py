# SPDX-License-Identifier: Apache-2.0
"""A bundle without names: what was planted in every part of a study is in no file of the bundle, however spelled."""

import base64
import gzip
import json
import re
import sqlite3
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from virtune.cli import run
from virtune.dialects.text.anonymous import Anonymous
from virtune.flows.reports.export import bundle
from virtune.store.store import Store

KEPT = Path(__file__).parents[1] / "store" / "data" / "older-method.sqlite.gz"
COMPARE = "20261122-184255-3883"

PLANTED = {
    "host": "kerberos7", "network": "corp.example-bank.test", "user": "mmustermann", "vm": "lohnbüro & söhne db",
    "long": "a-domain-with-a-very-long-name-indeed", "folder": "kunde müller", "volume": "vgbank-lohn",
    "serial": "S3Z8NB0K712345", "wwn": "naa.5002538e40b1c2d3", "uuid": "6f1c2d3e-4b5a-4978-8a7b-0c1d2e3f4a5b",
    "mac": "52:54:00:ab:cd:ef", "ipv4": "10.77.3.21", "ipv6": "fd12:3456:789a::7", "company": "Hinterhuber",
    "number": "90071992547",
}  # fmt: skip

DOMAIN_XML = """<domain type='kvm'><name>{xml_vm}</name><uuid>{uuid}</uuid>
<devices><disk type='file'><source file='/srv/{folder}/{xml_vm}.qcow2'/><serial>{serial}</serial></disk>
<disk type='network'><source protocol='rbd' name='{volume}/image'>
<host name='{host}.{network}' port='6789'/></source></disk>
<interface><mac address='{mac}'/></interface><graphics listen='{ipv4}'/></devices></domain>"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A stored study with names in its question, its facts, its checks and its captures."""
    place = tmp_path / "before.sqlite"
    place.write_bytes(gzip.decompress(KEPT.read_bytes()))
    named = PLANTED | {"xml_vm": PLANTED["vm"].replace("&", "&amp;")}
    with sqlite3.connect(place) as db:
        (text,) = db.execute("select study from studies where id = ?", (COMPARE,)).fetchone()
        study = json.loads(text)
        study["title"] = f"Is {PLANTED['vm']} of {PLANTED['company']} slow on {PLANTED['host'].upper()}?"
        study["scratch"] = f"/home/{PLANTED['user']}/{PLANTED['folder']}"
        study["connect"] = f"qemu+ssh://{PLANTED['user']}@{PLANTED['host']}.{PLANTED['network']}/system"
        study["arms"][1]["name"] = arm = f"{PLANTED['company']}={PLANTED['vm']}"
        study["arms"][1]["stack"]["domain"] = PLANTED["vm"]
        study["images"] = [
            {"path": f"/dev/{PLANTED['volume']}/root", "device": f"{PLANTED['wwn']} partition 2", "inode": None,
             "born_ns": None, "size_bytes": 1}
        ]  # fmt: skip
        renamed = json.dumps(study).replace('"slow"', json.dumps(arm))
        (facts,) = db.execute("select facts from studies where id = ?", (COMPARE,)).fetchone()
        fact = json.loads(facts)
        backing = fact["host"]["scratch"]["backing"]
        backing.update(source=f"{PLANTED['host']}:/export/{PLANTED['folder']}", options=[f"addr={PLANTED['ipv6']}"])
        backing["devices"][0]["label"] = PLANTED["volume"]
        fact["findings"][0]["text"] = f"{PLANTED['volume']} on {PLANTED['wwn']} is busy, says {PLANTED['host']}"
        db.execute("update studies set study = ?, facts = ? where id = ?", (renamed, json.dumps(fact), COMPARE))
        db.execute("update trials set arm = ? where arm = 'slow' and study_id = ?", (arm, COMPARE))
        db.execute(
            "update trials set in_force = replace(in_force, 'fdinfo/3', ?)", (f"/srv/{PLANTED['folder']}/x.raw",)
        )
        (trial,) = db.execute("select min(id) from trials where study_id = ?", (COMPARE,)).fetchone()
        systemd = PLANTED["long"].replace("-", "\\x2d")
        octal = f"/srv/{PLANTED['folder'].replace(' ', chr(92) + '040')} ext4"
        nested = json.dumps({"filename": f"/srv/{PLANTED['folder']}/{PLANTED['vm']}.raw"})
        planted = {
            "domain.xml": DOMAIN_XML.format_map(named),
            "rig.txt": f"qemu -name guest={PLANTED['long']},debug-threads=on -uuid {PLANTED['uuid']} "
                       f"--blockdev '{nested}' -device x,serial={PLANTED['number']},mac={PLANTED['mac']}",
            "guest.json": json.dumps({"hostname": PLANTED["host"], "seen": json.dumps({"name": PLANTED["vm"]})}),
            "log.txt": f"0::/machine.slice/machine-qemu{systemd}.scope\n{octal}\n"
                       f"/run/libvirt/qemu/domain-1-{PLANTED['long'][:20]}/m.sock {PLANTED['number']} bytes\n"
                       f"{PLANTED['uuid'].replace('-', '')} {PLANTED['mac'].upper()} file:///srv/kunde%20m%C3%BCller/x",
            "bytes.bin": f"\udcff {PLANTED['serial']} \udcfe",
        }  # fmt: skip
        for name, content in planted.items():
            packed = zlib.compress(content.encode("utf-8", "surrogateescape"))
            db.execute("insert or replace into captures values (?, ?, ?)", (trial, name, packed))
    return place


def _readings(content: bytes) -> Iterator[str]:
    """Yield a file as it is, and with the escapes of each language undone."""
    text = content.decode("utf-8", "surrogateescape").lower()
    yield text
    for _ in range(2):
        text = re.sub(r"\\+u([0-9a-f]{4})", lambda found: chr(int(found[1], 16)), text)
        text = re.sub(r"\\+x([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), text)
        text = re.sub(r"\\+([0-3][0-7]{2})", lambda found: chr(int(found[1], 8)), text)
        text = re.sub(r"&#(\d+);", lambda found: chr(int(found[1])), text).replace("&amp;", "&")
        text = unquote(text)
        yield text
    yield from (base64.b64decode(one).decode("latin-1").lower() for one in re.findall(r"base64,([\w+/=]{40,})", text))


def _found(place: Path) -> set[tuple[str, str]]:
    """Return which planted names are in which files of a bundle."""
    names = [one.lower() for one in PLANTED.values()]
    names += ["example-bank", "lohnbüro", "söhne", "müller", PLANTED["uuid"].replace("-", ""), PLANTED["long"][:20]]
    found = set()
    with zipfile.ZipFile(place) as packed:
        for entry in packed.namelist():
            for text in (entry.lower(), *_readings(packed.read(entry))):
                found |= {(name, entry) for name in names if name in text}
    return found


def test_no_planted_name_is_in_any_file_of_the_bundle(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, bare = tmp_path / "plain.zip", tmp_path / "bare.zip"
    with Store(store, reading=True) as kept:
        plain.write_bytes(bundle(kept, COMPARE, pages=False))
    seen = {name for name, _ in _found(plain)}
    assert {one.lower() for one in PLANTED.values()} <= seen  # the search finds each of them where it is
    hidden = ["--anonymous", "--hide", PLANTED["company"]]
    assert run(["show", "export", COMPARE, "--bundle", str(bare), *hidden, "--store", str(store)]) == 0
    assert _found(bare) == set()
    assert "look through the bundle" in capsys.readouterr().err
    with zipfile.ZipFile(plain) as before, zipfile.ZipFile(bare) as after:
        assert after.namelist() == [*before.namelist(), f"{COMPARE}/report.html"]
        old, new = (json.loads(one.read(f"{COMPARE}/result.json")) for one in (before, after))
        rig = after.read(f"{COMPARE}/captures/00001-1/rig.txt").decode()
        xml = after.read(f"{COMPARE}/captures/00001-1/domain.xml").decode()
        counters = [one.read(f"{COMPARE}/captures/00002-1/counters.jsonl") for one in (before, after)]
    # the same name is the same word in every file, and no figure has changed
    (vm,) = re.findall(r"<name>([^<]+)</name>", xml)
    assert new["arms"][1]["name"].endswith(f"={vm}")
    assert f"{vm}.qcow2" in xml and f"{vm}.raw" in rig  # noqa: PT018 - one thing
    for mine, theirs in zip(new["arms"], old["arms"], strict=True):
        figures = [[one["measurement"]["values"] for one in arm["rounds"]] for arm in (mine, theirs)]
        assert figures[0] == figures[1]
    assert counters[0] == counters[1]


@pytest.mark.parametrize(
    "text",
    [
        '{"iops": 1234.5, "bs": "4k", "time": "Sun Nov 22 18:43:00 2026", "percentile_list": "50:90:99:99.9"}',
        "/usr/bin/fio --readonly /proc/15006/fd/3 on 0000:00:1f.2, QEMU 7.2.22, 4k/8k, 127.0.0.1",
        "io_uring at /dev/nvme0n1p1 under /sys/block/nvme0n1/queue: 12 MB/s, read/write, 3.4.5, ext4 on /",
        '"uri": "nbd+unix:///disk?socket=/tmp/virtune-run-20261122-184255-3883-1217/disk.sock"',
        "http://libvirt.org/schemas/domain/qemu/1.0 qemu:///system",
    ],
)
def test_what_names_nobody_stays(text: str) -> None:
    words = Anonymous()
    words.learn(text)
    assert words.cleaned(text) == text


def test_a_vm_that_is_called_like_a_word_is_replaced_where_it_is_named() -> None:
    text = '{"domain": "read", "job options": {"rw": "read"}, "file": "/srv/read/read.raw"}'
    words = Anonymous(ours=["read"])
    words.learn(text)
    assert json.loads(words.cleaned(text))["job options"] == {"rw": "read"}
    assert '"domain": "vm-1"' in words.cleaned(text)
    assert "/read" not in words.cleaned(text)
    assert words.left == {"read"}


def test_a_directory_of_users_has_users_and_any_other_names() -> None:
    words, text = Anonymous(), "/home/tom/a.raw /media/anna/b.raw /srv/bert/c.raw"
    words.learn(text)
    assert [path.split("/")[2].rpartition("-")[0] for path in words.cleaned(text).split()] == ["user", "user", "name"]


def test_replacing_twice_changes_nothing_more() -> None:
    text = "host=a b@c.example.test:/x/y 10.1.2.3 52:54:00:12:34:56 /home/tom/file.raw serial=AB12CD"
    words = Anonymous()
    words.learn(text)
    once = words.cleaned(text)
    assert words.cleaned(once) == once
