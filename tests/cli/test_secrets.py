# SPDX-License-Identifier: Apache-2.0
"""No verb shows a password of a VM's configuration, in whatever language that is and in whatever form it prints."""

from pathlib import Path

import pytest

from virtune.cli import run

CAPTURES = Path(__file__).parents[1] / "captures"

LIBVIRT = """<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>web</name><memory unit='GiB'>1</memory><vcpu>1</vcpu><os><type arch='x86_64'>hvm</type></os>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw' cache='unsafe'/><source file='/x.raw'/><target dev='vda' bus='virtio'/></disk>
    <graphics type='vnc' passwd = 'S3CR'/>
    <graphics type='spice'
       passwd="S3CR"/>
  </devices>
  <qemu:commandline><qemu:arg value='-object'/><qemu:arg value='secret,id=s,data=S3CR'/>
    <qemu:env name='API_TOKEN' value='S3CR'/></qemu:commandline>
</domain>
"""

PROXMOX = """cipassword: S3CR
scsi0: local-lvm:vm-1-disk-0,cache=unsafe,size=8G
scsihw: virtio-scsi-single
args: -object secret,id=s,data=S3CR -vnc :1,password=on
"""

XL = """name = "web"
type = "hvm"
vncpasswd = 'S3CR'
disk = [ 'format=raw, vdev=xvda, access=rw, target=/dev/vg/web, no-discard' ]
spicepasswd = "S3CR"
"""

VMX = """.encoding = "UTF-8"
config.version = "8"
virtualHW.version = "19"
displayName = "web"
RemoteDisplay.vnc.password = "S3CR"
scsi0.present = "TRUE"
scsi0.virtualDev = "lsilogic"
scsi0:0.present = "TRUE"
scsi0:0.fileName = "web.vmdk"
RemoteDisplay.vnc.key = "S3CR"
guestinfo.userdata = "S3CR"
"""

VM_BHYVE = """loader="uefi"
cpu=1
memory=1G
graphics_vnc_password="S3CR"
disk0_type="ahci-hd"
disk0_name="disk0.img"
"""

KUBEVIRT = """apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata:
  name: web
spec:
  template:
    spec:
      domain:
        devices:
          disks:
          - name: root
            cache: writethrough
            # password: S3CR
            disk: {bus: virtio}
          - name: init
            disk: {bus: sata}
        resources: {requests: {memory: 1Gi}}
      volumes:
      - name: init
        cloudInitNoCloud:
          userData: |
            #cloud-config
            password: S3CR
            chpasswd: { list: [ root:S3CR ] }
      - name: root
        persistentVolumeClaim: {claimName: root}
"""

QEMU = """qemu-system-x86_64 -name web -drive file=/x.raw,format=raw,if=none,id=d,cache=unsafe \\
  -device virtio-blk-pci,drive=d -object secret,id=s,data=S3CR -spice password=S3CR,port=1 \\
  -drive file=rbd:p/i:id=a:key=S3CRAAAAAAAAAAAAAAAA==,format=raw,if=virtio -m 1G
"""

NOVA = """[DEFAULT]
transport_url = rabbit://u:S3CR@host
[libvirt]
rbd_secret_uuid = S3CR
images_type = rbd
disk_cachemodes = "network=unsafe"
"""

TEXTS = {
    "web.xml": (LIBVIRT, "disk.cache@vda=none"),
    "1.conf": (PROXMOX, "disk.cache@scsi0=none"),
    "web.cfg": (XL, "disk.discard@xvda=unmap"),
    "web.vmx": (VMX, None),
    "bhyve.conf": (VM_BHYVE, None),
    "web.yaml": (KUBEVIRT, "disk.cache@root=none"),
    "nova.conf": (NOVA, None),
    "web.cmdline": (QEMU, None),
}


@pytest.mark.parametrize("name", TEXTS)
def test_no_password_is_shown(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, change = TEXTS[name]
    path = tmp_path / name
    path.write_text(text)
    for form in ([], ["--json"], ["--sarif"]):
        assert run(["audit", str(path), "--fail-on", "never", *form]) == 0
        out, err = capsys.readouterr()
        assert "S3CR" not in out + err, form
    for form in ([], ["--json"]) if change is not None else ():
        assert run(["apply", "advise", str(path), "--set", change or "", *form]) == 0
        out, err = capsys.readouterr()
        assert "S3CR" not in out + err, form
        assert "***" in out, form  # it stands beside what is changed, so it would have been shown
