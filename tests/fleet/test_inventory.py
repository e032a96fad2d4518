# SPDX-License-Identifier: Apache-2.0
"""Inventories: every format is read, and hostile ones are refused in one sentence."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.published import complaints

from virtune.cli import run
from virtune.fleet.inventory import HOSTS_MAX, chosen, is_ssh_config, read_inventory
from virtune.fleet.ssh import address_of, ansible_variables
from virtune.model.errors import MissingToolError, UsageError
from virtune.shell import find_ansible

LIST = """\
# production
web1   rack=1
web2   rack=1   # the newer one
db1    ssh=root@[2001:db8::7]:2222 rack=2 shares=ceph1
db2    ssh=ssh://admin@192.0.2.9:2222

"""

SSH_CONFIG = """\
Include ~/.ssh/more
Host jump *.example !bad
  HostName 192.0.2.1
host=web1 "web2"
  User admin
Match host web1
  Port 2222
"""

ANSIBLE = {
    "_meta": {
        "hostvars": {
            "kvm1": {"ansible_host": "192.0.2.5", "ansible_user": "ops", "ansible_port": 2200,
                     "ansible_password": "geheim", "virtune_labels": {"rack": 7}},
            "kvm2": {},
        }
    },
    "all": {"children": ["hypervisors"]},
    "hypervisors": {"hosts": ["kvm1", "kvm2"]},
}  # fmt: skip


def test_a_list_gives_names_targets_and_labels() -> None:
    found = {one.name: one for one in read_inventory(LIST, source="hosts")}
    assert [*found] == ["web1", "web2", "db1", "db2"]
    assert found["web2"].labels == (("rack", "1"),)
    assert (found["db1"].target, found["db1"].label("shares")) == ("root@[2001:db8::7]:2222", "ceph1")
    assert (found["db2"].target, found["web1"].target) == ("ssh://admin@192.0.2.9:2222", "web1")


def test_an_ssh_config_gives_its_hosts_and_no_patterns() -> None:
    assert is_ssh_config(SSH_CONFIG)
    assert not is_ssh_config(LIST)
    assert [one.name for one in read_inventory(SSH_CONFIG, source="config")] == ["jump", "web1", "web2"]


def test_ansible_gives_targets_and_groups_and_no_other_variable() -> None:
    kvm1, kvm2 = read_inventory(json.dumps(ANSIBLE), source="ansible")
    assert kvm1.target == "ssh://ops@192.0.2.5:2200"
    assert kvm1.labels == (("group.hypervisors", "yes"), ("rack", "7"))
    assert (kvm2.target, kvm2.labels) == ("kvm2", (("group.hypervisors", "yes"),))
    assert "geheim" not in repr((kvm1, kvm2))


def test_libvirt_uris_give_ssh_targets_in_a_list_and_as_the_aliases_of_a_libvirt_conf() -> None:
    uris = "qemu+ssh://root@KVM1.example/system?keyfile=x rack=1\nqemu+libssh2://kvm2:2222/session ssh=kvm2-alias\n"
    first, second = read_inventory(uris, source="hosts")
    assert (first.name, first.target) == ("KVM1.example", "root@KVM1.example")
    assert first.labels == (("libvirt", "qemu:///system"), ("rack", "1"))
    assert (second.target, second.label("libvirt")) == ("kvm2-alias", "qemu:///session")
    conf = """# uri_aliases = ["no=qemu+ssh://no/system"]
uri_aliases = [
  "six=qemu+ssh://ops@[2001:db8::7]:2200/system",  'xen=xen+ssh://dom0',
  #"off=qemu+ssh://off/system",
  "here=qemu:///system", "tls=qemu+tls://far/system",
]
uri_default = "qemu+ssh://last/system"
"""
    six, xen = read_inventory(conf, source="libvirt.conf")
    assert (six.name, six.target) == ("six", "ssh://ops@[2001:db8::7]:2200")
    assert (xen.name, xen.target, xen.label("libvirt")) == ("xen", "dom0", "xen:///system")


HOSTILE = (
    ("qemu:///system", "is no libvirt URI over SSH"),
    ("qemu+tls://far/system", "is no libvirt URI over SSH"),
    ("qemu+ssh://me:geheim@far/system", "'far/system' is no libvirt URI over SSH"),
    ("qemu+ssh://-oProxyCommand=x/system", "not the name of a host"),
    ("qemu+ssh://$(x)@far/system", "not what ssh can be called with"),
    ('uri_aliases = ["here=qemu:///system"]', "names no host"),
    ('uri_aliases = ["-o=qemu+ssh://far/system"]', "not the name of a host"),
    ("", "names no host"),
    ("\0", "not a text file"),
    ("-oProxyCommand=reboot", "not the name of a host"),
    ("a ssh=-oProxyCommand=reboot", "not what ssh can be called with"),
    ("a ssh=b;reboot", "not what ssh can be called with"),
    ("a ssh=$(reboot)", "not what ssh can be called with"),
    ("a\nb\na rack=2", r"names the host 'a' twice \(lines 1 and 3\)"),
    ("a rack", "line 1: 'rack' is not a label"),
    ("a rack=\x1b[31m", "is not a label"),
    ("a rack=1 rack=2", "the label 'rack' is given twice"),
    ("a ssh=b ssh=c d=1 ../../etc=1", "is not a label"),
    ("\n".join(f"h{number}" for number in range(HOSTS_MAX + 1)), "more than 5000 hosts"),
    ("{", "begins as JSON and is not JSON"),
    ("{" * 100_000, "begins as JSON and is not JSON"),
    ('{"a":' * 20_000 + "1" + "}" * 20_000, "begins as JSON|not that of an Ansible inventory"),
    ('{"hosts": []}', "not that of an Ansible inventory"),
    ('{"_meta": {"hostvars": {"a": 1}}}', "not that of an Ansible inventory"),
    ('{"_meta": {"hostvars": {}}, "g": {"hosts": "ab"}}', "not a list of names"),
    (
        '{"_meta": {"hostvars": {"a": {"ansible_connection": "winrm"}}}}',
        "it is reached neither by SSH nor by kubectl",
    ),
    ('{"_meta": {"hostvars": {"a": {"ansible_host": "-x"}}}}', "not what ssh can be called with"),
    ("Host -oProxyCommand=x\n", "not the name of a host"),
)


@pytest.mark.parametrize(("text", "said"), HOSTILE)
def test_a_hostile_inventory_is_refused_in_one_sentence(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        read_inventory(text, source="hosts")
    assert refused.value.message.isprintable()
    assert len(refused.value.message) < 300


@given(st.text(max_size=200))
def test_any_text_gives_hosts_that_ssh_may_be_called_with_or_a_sentence(text: str) -> None:
    try:
        found = read_inventory(text, source="hosts")
    except UsageError:
        return
    assert all(one.target[0] not in "-;$" and not set(one.target) & set(" \t;$`'\"|&<>(){}*?") for one in found)


def test_hosts_are_chosen_by_name_and_by_label() -> None:
    every = read_inventory(LIST, source="hosts")
    assert [one.name for one in chosen(every, names=(), labels=("rack=1",))] == ["web1", "web2"]
    assert [one.name for one in chosen(every, names=("db1",), labels=("rack=2", "shares=ceph1"))] == ["db1"]
    with pytest.raises(UsageError, match="no host 'web9'"):
        chosen(every, names=("web9",), labels=())
    with pytest.raises(UsageError, match="no host has the label rack=1 and rack=2"):
        chosen(every, names=(), labels=("rack=1", "rack=2"))


def test_the_addresses_are_those_that_ssh_says(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config").write_text("Host one\n  HostName 192.0.2.1\n  User ops\n  Port 2200\nHost two\n")
    (tmp_path / "hosts").write_text("three ssh=me@192.0.2.3 rack=9\n")
    words = ["-i", str(tmp_path / "config"), "-i", str(tmp_path / "hosts"), "--libvirt", "qemu+ssh://me@192.0.2.4"]
    assert run(["fleet", "inventory", *words, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert complaints("fleet-inventory", found) == []
    assert [(one["user"], one["address"], one["port"]) for one in found["hosts"][:3:2]] == [
        ("ops", "192.0.2.1", 2200),
        ("me", "192.0.2.3", 22),
    ]
    assert found["hosts"][2]["labels"] == {"rack": "9"}
    assert (found["hosts"][3]["address"], found["hosts"][3]["labels"]) == ("192.0.2.4", {"libvirt": "qemu:///system"})


@pytest.mark.parametrize(
    ("line", "user", "port"),
    [
        ("six ssh=ops@[2001:db8::7]:2200", "ops", 2200),
        ("six ssh=ssh://ops@[2001:db8::7]:2200", "ops", 2200),
        ("six ssh=ops@[2001:db8::7]", "ops", 22),
        ('uri_aliases = ["six=qemu+ssh://ops@[2001:db8::7]:2200/system"]', "ops", 2200),
        ('uri_aliases = ["six=qemu+ssh://ops@[2001:db8::7]/system"]', "ops", 22),
        (json.dumps({"all": {"hosts": ["six"]}, "_meta": {"hostvars": {"six": {
            "ansible_host": "2001:db8::7", "ansible_user": "ops", "ansible_port": 2200}}}}), "ops", 2200),
    ],
)  # fmt: skip
def test_an_ipv6_address_is_given_to_ssh_as_it_takes_it(line: str, user: str, port: int) -> None:
    """As a URI writes it, ssh looked for a name with brackets, or ended with its usage."""
    (host,) = read_inventory(line, source="hosts")
    found = address_of(host)
    assert (found.user, found.host, found.port) == (user, "2001:db8::7", port)
    told = ansible_variables(host)
    assert (told["ansible_host"], told.get("ansible_port", 22)) == ("2001:db8::7", port)


def test_any_source_of_ansible_is_read_by_its_own_program(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "ansible-inventory"  # answers as the real one does; test_ansible.py has that
    asked = "[ \"$LC_ALL $*\" = 'C.UTF-8 -i prod.yml --list' ] || exit 3"
    program.write_text(f"#!/bin/sh\n{asked}\ncat <<'E'\n{json.dumps(ANSIBLE)}\nE\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert run(["fleet", "inventory", "--ansible", "prod.yml", "--label", "rack=7"]) == 0
    assert "ops@192.0.2.5:2200" in capfd.readouterr().out
    assert run(["fleet", "inventory", "--ansible", "other.yml"]) == 1
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert find_ansible("ansible-inventory", beyond=tmp_path) == str(program)
    with pytest.raises(MissingToolError, match="`ansible-inventory` is not installed") as missing:
        find_ansible("ansible-inventory", beyond=tmp_path / "nothing")
    assert missing.value.hint == "`pip install ansible-core` brings it, as the extra virtune[fleet] does"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no inventory"),
        (["-i", "missing"], "cannot read the inventory missing: no such file or directory"),
        (["-i", "binary"], "the inventory binary is not text in UTF-8"),
        (["-i", "hosts", "-i", "same"], "two inventories name the host 'a'"),
        (["-i", "hosts", "--ssh-config", "broken"], "ssh refuses the host 'a'"),
    ],
)
def test_what_is_no_inventory_is_one_sentence(
    words: list[str], said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in (
        ("binary", b"\xff"),
        ("hosts", b"a\n"),
        ("same", b"\xef\xbb\xbfa\r\n"),
        ("broken", b"Nonsense yes\n"),
    ):
        (tmp_path / name).write_bytes(content)
    assert run(["fleet", "inventory", *words]) in (2, 3)
    assert said in capfd.readouterr().err
