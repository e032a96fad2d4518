# SPDX-License-Identifier: Apache-2.0
"""Passwords are masked in whatever language they stand, and nothing else becomes unreadable for it."""

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtune.dialects.text.masking import MASK, masked

CAPTURES = Path(__file__).parents[1] / "captures"

SECRETS = (
    "<graphics type='vnc' passwd = 'S3CR hx'/>",
    "<graphics type='vnc' passwd='geheim S3CR' port='1'/>",
    "<graphics passwd=\n  'S3CR'/>",
    "<qemu:arg value='secret,id=s,data=S3CR,format=raw'/>",
    "<qemu:arg value='secret,data=S3CR,, S3CR,id=s'/>",
    "<qemu:env name='DB_PASSWORD' value='S3CR'/>",
    "<qemu:env value='S3CR' name='DB_PASSWORD'/>",
    "<entry name='opt/x.token'>S3CR</entry>",
    "<password>\n S3CR\n</password>",
    "<cookie name='a'>S3CR</cookie>",
    "cipassword: S3CR with, commas",
    "vncpasswd='S3CR'",
    'spicepasswd = "S3CR"',
    "vfb = [ 'type=vnc,vncpasswd=S3CR,vncunused=1' ]",
    'RemoteDisplay.vnc.key = "S3CR"',
    'RemoteDisplay.vnc.password = "S3CR"',
    'guestinfo.userdata = "S3CR"',
    "-object secret,id=sec0,data=S3CR -m 4G",
    '-object \'{"qom-type":"secret","id":"s","data":"S3CR"}\'',
    "<qemu:arg value='{&quot;qom-type&quot;:&quot;secret&quot;,&quot;data&quot;:&quot;S3CR&quot;}'/>",
    '{"qom-type": "secret",\n "id": "s",\n "data": "S3CR"}',
    "-drive file=rbd:pool/img:id=admin:key=AQBS3CRAAAAAAAAAAAAA==:x=y",
    "-drive file=iscsi://user%S3CR@host/iqn/1",
    "file=https://u:S3CR@host/x.iso",
    "-spice port=1,password=S3CR,x=y",
    "-s 29,fbuf,tcp=0.0.0.0:5900,password=S3CR",
    'graphics_vnc_password="S3CR"',
    "admin_password = S3CR S3CR",
    "password: |\n    S3CR\n    S3CR\nother: ok",
    "userData: |-\n  #cloud-config\n  runcmd: S3CR\n\n  password: S3CR\nx: y",
    "userDataBase64: S3CR",
    "- name: MY_TOKEN\n  value: S3CR",
    "  chpasswd:\n    list: |\n      root:S3CR\n  b: c",
    "{password: S3CR x, expire: false}",
    "passwd: $6$S3CR$x",
    "'password': 'it''S3CR'",
    '"password": "a\\"S3CR"',
    "-----BEGIN RSA PRIVATE KEY-----\nS3CR\nS3CR\n-----END RSA PRIVATE KEY-----",
    "#password=S3CR",
    "args: -object secret,id=s,data=S3CR -vnc :0",
    "<qemu:arg value='password=S3CR hey'/>",
    '"{\\"password\\": \\"S3CR\\"}"',
    "-fw_cfg name=opt/x,string=password=S3CR",
    "-smbios type=11,value=io.systemd.credential:passwd.hashed-password.root=S3CR",
    "password: 'S3CR\n  S3CR'",
)
"""Of libvirt, QEMU, Proxmox, Xen, VMware, bhyve, KubeVirt, Nova, cloud-init; `S3CR` is what nobody may see."""


@pytest.mark.parametrize("text", SECRETS)
def test_what_is_secret_is_masked_and_the_lines_stay(text: str) -> None:
    said = masked(text)
    assert "S3CR" not in said
    assert MASK in said
    assert said.count("\n") == text.count("\n")
    assert masked(said) == said


WORD = st.text(st.characters(codec="ascii", categories=("L", "N"), include_characters="-_.!?%()*+~^"), min_size=3)


@given(
    st.sampled_from([text for text in SECRETS if "key=AQ" not in text]),
    WORD,
    st.text(max_size=40),
    st.text(max_size=40),
)
def test_any_password_is_masked_between_any_lines(text: str, word: str, before: str, after: str) -> None:
    secret = f"Q{word}Q"
    whole = f"{before}\n{text.replace('S3CR', secret)}\n{after}"
    said = masked(f"<a/>\n{whole}")
    assert secret not in said.removeprefix(before).removesuffix(after) or secret in before + after
    assert said.count("\n") == whole.count("\n") + 1


OPEN = (
    "<disk type='file' device='disk'>\n  <driver name='qemu' type='raw' cache='none' queues='4'/>\n</disk>",
    "<auth username='libvirt'>\n  <secret type='ceph' uuid='0e7a'/>\n</auth>",
    "<hostdev mode='subsystem' type='pci' managed='yes'>",
    "-drive file=/var/lib/x.qcow2,if=virtio,key-secret=sec0 -vnc :0",
    "scsi0: local-lvm:vm-101-disk-0,cache=none,iothread=1",
    "-netdev bridge,id=n,br=br0 -cpu host,migratable=off",
    "disk = [ 'phy:/dev/vg/guest,xvda,w', 'file:/x.iso,hdc:cdrom,r' ]",
    "keyboard: de\nmonkey: 1\nsshkeys: ssh-rsa%20AAAA",
    "data: 3\nbypass=on\ncompass: north",
)


@pytest.mark.parametrize("text", OPEN)
def test_what_is_not_secret_stays(text: str) -> None:
    assert masked(text) == text


@pytest.mark.parametrize(
    "name",
    [
        "passwd", "password", "passphrase", "passcode", "adminPass", "secret", "token", "credential", "cookie",
        "vnc.key", "keysafe", "private_key", "apikey", "api-key", "access.key", "AUTH_KEY", "encryptionKey",
        "user_data", "userdata", "user-data",
    ],
)  # fmt: skip
def test_each_name_of_a_secret_alone_in_a_text_hides_what_it_has(name: str) -> None:
    """Texts are first searched for parts of these names."""
    assert "hunter2" not in masked(f"name = web1\n{name} = hunter2\n")


def test_of_real_configurations_only_what_is_secret_is_masked() -> None:
    lines = 0
    changed: list[str] = []
    for path in sorted((CAPTURES / "domains").iterdir()):
        text = path.read_text(errors="replace")
        lines += text.count("\n")
        changed += [old for old, new in zip(text.split("\n"), masked(text).split("\n"), strict=True) if old != new]
    assert lines > 1000
    assert changed == []


@pytest.mark.parametrize(
    "text",
    [
        "a" * 500_000, "x password=" * 40_000, "password=" * 50_000, "<" * 50_000, "secret" * 50_000,
        "{secret" * 20_000, "name: a\n" * 50_000, "://a" * 50_000, "-----BEGIN PRIVATE KEY-----" * 5_000,
        "'password=" * 20_000, "password: |\n" * 20_000, '"password": "' + "\\" * 100_000,
    ],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_a_hostile_text_is_masked_in_time(text: str) -> None:
    begun = time.process_time()
    masked(text)
    assert time.process_time() - begun < 5
