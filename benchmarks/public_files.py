# SPDX-License-Identifier: Apache-2.0
"""What virtune reads of other projects' files: `python -m benchmarks.public_files FOLDER [SHOW]`.

FOLDER holds checkouts of libvirt, Xen, qemu-server, virt-manager, fio, PerfKitBenchmarker, VirtualClient, vdbconvert
and vdb_oceanstor; which of their folders are looked into is in `COLLECTIONS`. Where a VM is there in two languages,
both are read and compared disk by disk: libvirt's XML with the command line beside it, with xl's and with VMware's
file, Proxmox's file with the command line beside it.
SHOW is how many of the differences are printed (none where nothing is said). `public_files.md` has the counts.
"""

import json
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from virtune.dialects.languages import LANGUAGES, language_of
from virtune.fio.results import read_result, text_of
from virtune.fio.workloads import read_job_file
from virtune.model.domain import Domain, DomainDisk, cache_of
from virtune.model.errors import PlanError, ReadError

Fields = Mapping[str, object]


@dataclass(slots=True)
class Counts:
    """What came of one collection: `right`, `refused`, `wrong` count files or disks, `said` holds the differences.

    A file is refused rightly where its own project says that it holds no VM that starts, or where virtune's rule is
    to refuse such a one. `disks` are those that were compared with another language of the same VM.
    """

    files: Counter[str] = field(default_factory=Counter)
    disks: Counter[str] = field(default_factory=Counter)
    fields: Counter[str] = field(default_factory=Counter)
    said: list[str] = field(default_factory=list)

    def wrong(self, name: str, because: str) -> None:
        """Count a file that is read wrongly or not at all."""
        self.files["wrong"] += 1
        self.said.append(f"{name}: {because}")

    def compare(self, name: str, theirs: Mapping[str, Fields], ours: Mapping[str, Fields]) -> None:
        """Count the disks of one VM: right where every field that both languages have is the same."""
        wrong = False
        for key in {**theirs, **ours}:
            what: dict[str, tuple[object, object]]
            if key not in theirs or key not in ours:
                what = {"missed" if key in theirs else "invented": (theirs.get(key), ours.get(key))}
            else:
                common = theirs[key].keys() & ours[key].keys()
                what = {
                    one: (theirs[key][one], ours[key][one])
                    for one in sorted(common)
                    if theirs[key][one] != ours[key][one]
                }
            wrong = wrong or bool(what)
            if key != "VM":
                self.disks["wrong" if what else "right"] += 1
            self.fields.update(list(what))
            self.said += [f"{name} {key}: {one} is {a}, read as {b}" for one, (a, b) in what.items()]
        self.files["wrong" if wrong else "right"] += 1


def read(path: Path, name: str = "") -> Domain:
    """Read a file as the audit does, by its content; raises ReadError."""
    text = path.read_bytes()
    language = next(one for one in LANGUAGES if one.name == name) if name else language_of(text)
    return language.read(text)


# What two languages say of one disk ---------------------------------------------------------------------------------


def common(disk: DomainDisk) -> dict[str, object]:
    """What every language says of a disk, with QEMU's defaults where nothing is written."""
    return {
        "path": disk.source.name,
        "format": disk.format or "raw",
        "bus": disk.bus,
        "kind": "cdrom" if disk.device == "cdrom" else "floppy" if disk.device == "floppy" else "disk",
        "readonly": disk.read_only or disk.device == "cdrom",
    }


def tuned(disk: DomainDisk, domain: Domain) -> dict[str, object]:
    """What only the languages of QEMU say of a disk."""
    discard = disk.discard if disk.discard == "unmap" else "ignore"
    zeroes = disk.detect_zeroes or "off"
    controller = domain.controller_of(disk) if disk.bus == "scsi" else None
    cache = "none" if disk.shareable and disk.cache in (None, "default") else cache_of(disk)
    return {
        "cache": cache,
        "io": disk.io,
        "discard": discard,
        "detect_zeroes": "on" if zeroes == "unmap" and discard != "unmap" else zeroes,
        "iothread": tuple(sorted(domain.threads_of(disk))),
        "queues": controller.queues if controller is not None and controller.queues else disk.queues,
        "queue_size": disk.queue_size,
        "limits": dict(sorted((name, value) for name, value in disk.limits if value)),
    }


def of_qemu(domain: Domain) -> list[tuple[DomainDisk, dict[str, object]]]:
    return [(disk, common(disk) | tuned(disk, domain)) for disk in domain.disks]


def numbered(found: list[tuple[str, dict[str, object]]]) -> dict[str, Fields]:
    """Disks by their place: the n-th of those with the same key."""
    count: Counter[str] = Counter()
    named: dict[str, Fields] = {}
    for key, fields in found:
        count[key] += 1
        named[f"{key}#{count[key]}"] = fields
    return named


# libvirt: XML and the command line that libvirt makes of it --------------------------------------------------------


_BUSES = ("virtio", "scsi", "ide", "sata", "usb", "nvme", "fdc", "sd")
_NOT_THERE = (("virtio", "none"), ("fdc", "none"), ("sd", "none"))
"""Drives that the command line does not have while nothing is in them."""

EXPLAINED = {
    "disk-transient": "libvirt plugs a disk in after the start whose backing is shared",
    "disk-startuppolicy-optional-drop": "libvirt drops a disk that is not there",
    "disk-cdrom-bus-other": "a CD-ROM on USB is a usb-storage like any other",
    "cpu-hotplug-startup": "libvirt plugs in the vCPUs that are not the first after the start",
    "cdrom-ide-file-missing-datastore": "libvirt's test has no such file, and drops its name",
    "cdrom-ide-file-missing-file": "libvirt's test has no such file, and drops its name",
    "simple-btrfs": "Proxmox's default for the cache depends on the storage, which its file does not say",
    "simple-arm": "a guest of another architecture is emulated",
    "simple-x86-on-arm-host": "a guest of another architecture is emulated",
    "efi-raw-template": "a template is started for its backup only, in a way of its own",
    "q35-linux-hostpci-template": "a template is started for its backup only, in a way of its own",
    "simple1-template": "a template is started for its backup only, in a way of its own",
}
"""Where the two languages differ rightly."""


def qemu_lines(place: Path, counts: Counts) -> None:
    """Each `.args` of libvirt's tests against the XML that it was made of."""
    for path in sorted(place.glob("*.args")):
        stem = path.name.split(".")[0]
        inputs = (path.with_suffix(".xml"), place / f"{stem}.xml")
        xml = next((one for one in inputs if one.exists()), None)
        if xml is None or stem in EXPLAINED:
            continue
        try:
            theirs = read(xml, "libvirt")
        except ReadError as error:
            counts.wrong(xml.name, error.message)
            continue
        try:
            ours = read(path)
        except ReadError as error:
            counts.wrong(path.name, error.message)
            continue
        counts.compare(path.name, {"VM": _vm(theirs), **_of_xml(theirs)}, {"VM": _vm(ours), **_of_line(ours)})


def _vm(domain: Domain) -> dict[str, object]:
    return {"name": domain.name, "uuid": domain.uuid, "vcpus": domain.vcpus, "kind": domain.kind,
            "iothreads": tuple(one.number for one in domain.threads)}  # fmt: skip


def _of_xml(domain: Domain) -> dict[str, Fields]:
    """The disks that libvirt puts on the command line, without what it writes otherwise there or not at all."""
    found = []
    for disk, fields in of_qemu(domain):
        if disk.source.kind == "vhostuser" or disk.bus not in _BUSES or (disk.bus, disk.source.kind) in _NOT_THERE:
            continue
        # the monitor sets limits, unless they are filters; what is behind a pool or a network has other names
        hidden = set() if "throttlefilters" in disk.options else {"limits"}
        if disk.source.kind in ("none", "volume", "network", "nvme", "dir", "vhostvdpa"):
            hidden |= {"path", "format", "cache", "io", "discard", "detect_zeroes"}
        letters = re.sub(r"^(xv|[vshf])d", "", disk.target)
        shown = {key: value for key, value in fields.items() if key not in hidden}
        found.append((disk.bus, (len(letters), letters), shown))
    return numbered([(bus, fields) for bus, _, fields in sorted(found, key=lambda one: one[:2])])


def _of_line(domain: Domain) -> dict[str, Fields]:
    found = []
    for disk, fields in of_qemu(domain):
        number = re.fullmatch(r"virtio-disk(\d+)", disk.target)
        if disk.source.name.startswith("/dev/fdset/"):  # libvirt opened it, and hands it over
            del fields["path"]
        fields["format"] = "raw" if fields["format"] == "luks" else fields["format"]
        found.append((disk.bus or "", int(number[1]) if number else 0, fields))
    return numbered([(bus, fields) for bus, _, fields in sorted(found, key=lambda one: one[:2])])


def libvirt_alone(place: Path, counts: Counts) -> None:
    """Every XML of a folder: read, or refused where libvirt's own test says that it is no domain that starts."""
    for path in sorted(place.rglob("*.xml")):
        text = path.read_bytes()
        try:
            read(path, "libvirt")
        except ReadError as error:
            if next(place.glob(f"{path.name.split('.')[0]}.*.err"), None) is not None or not _is_domain(text):
                counts.files["refused"] += 1
            else:
                counts.wrong(path.name, error.message)
        else:
            counts.files["right"] += 1


def _is_domain(text: bytes) -> bool:
    """What another parser says: one document, and its root a domain."""
    try:
        return ElementTree.fromstring(text).tag == "domain"  # noqa: S314  # test data of known projects
    except ElementTree.ParseError:
        return False


# Xen ----------------------------------------------------------------------------------------------------------------


_DRIVERS = {"qemu": "qdisk", "tap2": "tap"}


def xen_pairs(place: Path, counts: Counts) -> None:
    """Each xl or xm file of libvirt's tests against the XML beside it."""
    for path in sorted(place.glob("*.cfg")):
        xml = path.with_suffix(".xml")
        if not xml.exists():
            continue
        theirs = {disk.target: _xen(disk) for disk in read(xml, "libvirt").disks}
        try:
            ours = read(path, "xl")
        except ReadError as error:
            counts.wrong(path.name, error.message)
            continue
        counts.compare(path.name, theirs, _by_target(ours))


def _by_target(domain: Domain) -> dict[str, Fields]:
    return numbered_targets([(disk.target, _xen(disk)) for disk in domain.disks])


def numbered_targets(found: list[tuple[str, dict[str, object]]]) -> dict[str, Fields]:
    """Disks by target; a second one of a name is another disk."""
    named: dict[str, Fields] = {}
    for key, fields in found:
        named[key if key not in named else f"{key}, again"] = fields
    return named


def _xen(disk: DomainDisk) -> dict[str, object]:
    fields = common(disk)
    if disk.source.kind == "network":
        del fields["path"]
    if disk.source.kind == "none":
        fields["path"] = ""
        del fields["format"]
    return fields


def xen_strings(place: Path, counts: Counts) -> None:
    """The strings of Xen's own test of disks, each against what xl makes of it."""
    expected: dict[str, object] = {}
    script = (place / "check-xl-disk-parse").read_text()
    for block, options in re.findall(r"^disk: (\{[^}]*\})|^one 0 +([^\n]*)$", script, re.MULTILINE):
        if block:
            expected = json.loads(block)
            continue
        words = shlex.split(options)
        disk = ",".join(words)
        config = json.dumps(disk)
        try:
            (one,) = (
                next(lang for lang in LANGUAGES if lang.name == "xl")
                .read(f"name = 'a'\ndisk = [ {config} ]\n".encode())
                .disks
            )
        except ReadError as error:
            counts.wrong(disk, error.message)
            continue
        ours = {
            "vdev": one.target, "path": one.source.name, "cdrom": one.device == "cdrom",
            "readwrite": not one.read_only and one.device != "cdrom",
            "discard": {"unmap": "True", "ignore": "False"}.get(one.discard or ""),
        }  # fmt: skip
        theirs = {
            "vdev": expected["vdev"], "path": expected.get("pdev_path", ""), "cdrom": bool(expected.get("is_cdrom")),
            "readwrite": bool(expected.get("readwrite")), "discard": expected.get("discard_enable"),
        }  # fmt: skip
        if expected.get("format") != "empty":
            ours["format"], theirs["format"] = one.format, expected["format"]
        counts.compare(disk, {"disk": theirs}, {"disk": ours})


def xen_examples(place: Path, counts: Counts) -> None:
    """Xen's own examples: read, with the disk that each of them has."""
    for path in sorted(place.glob("xlexample*")):
        try:
            domain = read(path)
        except ReadError as error:
            counts.wrong(path.name, error.message)
            continue
        ours = {
            disk.target: {"path": disk.source.name.rpartition("/")[2], "format": disk.format} for disk in domain.disks
        }
        counts.compare(path.name, {"xvda": {"path": "guest-volume", "format": "raw"}}, ours)


# VMware and Proxmox -------------------------------------------------------------------------------------------------


def vmware_pairs(place: Path, counts: Counts) -> None:
    """Each .vmx of libvirt's tests against the XML beside it."""
    for path in sorted(place.glob("*.vmx")):
        xml = path.with_suffix(".xml")
        if not xml.exists() or path.stem in EXPLAINED:
            continue
        other = read(xml, "libvirt")
        try:
            ours = read(path)
        except ReadError as error:
            counts.wrong(path.name, error.message)
            continue
        counts.compare(
            path.name,
            {"VM": {"vcpus": other.vcpus, "name": other.name}, **_vmware(other)},
            {"VM": {"vcpus": ours.vcpus, "name": ours.name}, **_vmware(ours)},
        )


def _vmware(domain: Domain) -> dict[str, Fields]:
    """Disks with the last part of their paths, since libvirt writes the data store and the folder in front.

    Floppies and drives without a medium have no place in both, and a host's CD-ROM drive is a `lun` to libvirt.
    """
    found = []
    for disk in domain.disks:
        drive = disk.device in ("cdrom", "lun")
        if disk.device != "floppy" and not (drive and (disk.source.kind != "file" or "drive" in disk.source.name)):
            name = disk.source.name.rpartition("/")[2].rpartition("] ")[2]
            found.append((disk.bus or "", {"path": name, "cdrom": drive, "cache": cache_of(disk)}))
    return numbered(found)


def proxmox_pairs(place: Path, counts: Counts) -> None:
    """Each .conf of qemu-server's tests against the command line that it makes of it."""
    for path in sorted(place.rglob("*.conf")):
        beside = path.with_name(f"{path.name}.cmd")
        if not beside.exists():  # such a test expects an error
            counts.files["refused"] += 1
            continue
        if path.stem in EXPLAINED:
            continue
        try:
            conf, line = read(path, "proxmox"), read(beside, "qemu")
        except ReadError as error:
            counts.wrong(path.name, error.message)
            continue
        theirs = {disk.target: _proxmox(disk, conf) for disk in conf.disks}
        ours = {disk.target: _proxmox(disk, line) for disk in line.disks if disk.target in theirs or disk.holds_data}
        vm = {"vcpus": conf.vcpus, "kind": conf.kind, **({"name": conf.name} if conf.name else {})}
        shown = {"vcpus": line.vcpus, "name": line.name, "kind": line.kind}
        counts.compare(path.name, {"VM": vm, **theirs}, {"VM": shown, **ours})


def _proxmox(disk: DomainDisk, domain: Domain) -> dict[str, object]:
    """A storage's volume becomes a path, and the engine is chosen by the storage where the file says none."""
    fields = common(disk) | tuned(disk, domain)
    fields["iothread"] = len(domain.threads_of(disk))
    if disk.io is None:
        del fields["io"]
    if disk.source.kind == "none" or disk.device == "cdrom":
        return {"kind": fields["kind"]}
    if not disk.source.name.startswith("/"):
        for key in ("path", "format"):
            del fields[key]
    if disk.bus in ("ide", "sata") and "q35" in (domain.machine or ""):  # q35 has no IDE: Proxmox's go to its AHCI
        fields["bus"] = "sata"
    return fields


# fio ----------------------------------------------------------------------------------------------------------------


def fio_results(place: Path, counts: Counts) -> None:
    """fio's results: read, or refused; what is no result (job files, logs of histograms) is passed over."""
    for path in sorted(place.rglob("*.json")):
        text = text_of(path.read_bytes())
        if '"fio version"' not in text:
            continue
        try:
            read_result(text)
        except ReadError as error:
            counts.wrong(path.name, error.message)
        else:
            counts.files["right"] += 1


def diskspd_results(place: Path, counts: Counts) -> None:
    """DiskSpd's reports: read with the I/Os of its table of both directions, or of its XML."""
    for path in sorted(place.glob("*[dD]isk[sS]pd*")) + sorted(place.glob("*Write8k*")):
        text = text_of(path.read_bytes())
        table = re.search(
            r"^Total IO$.*?^total:\s+(\d+) \|\s+(\d+) ", text.replace("\r", ""), re.MULTILINE | re.DOTALL
        )
        kinds = [[int(one) for one in re.findall(f"<{kind}>(\\d+)<", text)] for kind in ("BytesCount", "IOCount")]
        theirs = (int(table[1]), int(table[2])) if table else (sum(kinds[0]), sum(kinds[1]))
        try:
            streams = read_result(text).streams
        except ReadError as error:
            counts.wrong(path.name, error.message)
            continue
        ours = (sum(one.bytes or 0 for one in streams), sum(one.ios or 0 for one in streams))
        if ours == theirs:
            counts.files["right"] += 1
        else:
            counts.wrong(path.name, f"{ours} bytes and I/Os, where it says {theirs}")


def vdbench_results(place: Path, counts: Counts) -> None:
    """Vdbench's folders: the flatfile and the summary of each read with the I/Os that its histograms count."""
    for path in sorted(place.parent.glob("*/flatfile.html")):
        beside = [text_of(path.with_name(f"{name}.html").read_bytes()) for name in ("histogram", "summary")]
        theirs = []
        for part in re.split(r" Starting RD=", beside[0])[1:]:
            # of reads and writes together, or of the only ones
            table = part.partition("min(ms)")[2].partition("min(ms)")[0]
            theirs.append(sum(int(one.replace(",", "")) for one in re.findall(r"< +(?:[\d.]+|max) +([\d,]+)", table)))
        for name, text in (("flatfile", text_of(path.read_bytes())), ("summary", beside[1])):
            try:
                ours = [load.ios for load in read_result(text).loads]
            except ReadError as error:
                if "avg_" in text:
                    counts.wrong(f"{path.parent.name}/{name}", error.message)
                else:  # it was interrupted, and has no average
                    counts.files["refused"] += 1
                continue
            near = 2 if name == "flatfile" else 20  # the summary's rate has one or two digits
            if len(ours) == len(theirs) and all(abs(a - b) <= near for a, b in zip(ours, theirs, strict=True)):
                counts.files["right"] += 1
            else:
                counts.wrong(f"{path.parent.name}/{name}", f"{ours} I/Os, where its histograms count {theirs}")


def fio_jobs(place: Path, counts: Counts) -> None:
    """fio's example job files: read, or refused by a rule with its line (most load a device that they name)."""
    for path in sorted(place.glob("*.fio")):
        try:
            read_job_file(path.read_text(), path.name)
        except PlanError as error:
            counts.files["refused"] += 1
            counts.said.append(f"{path.name}: {error.message}")
        else:
            counts.files["right"] += 1


COLLECTIONS: Mapping[str, tuple[str, Callable[[Path, Counts], None]]] = {
    "libvirt XML alone": ("tests/qemuxmlconfdata", libvirt_alone),
    "QEMU line against libvirt XML": ("tests/qemuxmlconfdata", qemu_lines),
    "xm file against libvirt XML": ("tests/xmconfigdata", xen_pairs),
    "xl file against libvirt XML": ("tests/xlconfigdata", xen_pairs),
    "xl's disk strings": ("tools/xl", xen_strings),
    "Xen's examples": ("tools/examples", xen_examples),
    ".vmx against libvirt XML": ("tests/vmx2xmldata", vmware_pairs),
    "Proxmox against its QEMU line": ("src/test/cfg2cmd", proxmox_pairs),
    "virt-manager XML alone": ("tests/data/cli", libvirt_alone),
    "fio results": ("tests/data/fio", fio_results),
    "fio job files": ("examples", fio_jobs),
    "DiskSpd text": ("Examples/DiskSpd", diskspd_results),
    "DiskSpd XML": ("tests/data", diskspd_results),
    "Vdbench": ("test", vdbench_results),
}
"""Each collection: the end of its folder's path in the project's checkout, and what is done with it."""


def places(root: Path, ending: str) -> Iterator[Path]:
    """The folders below a root, or below links in it, whose path ends so."""
    for project in sorted(root.iterdir()):
        if (project / ending).is_dir():
            yield project / ending


def main(root: Path, show: int) -> None:
    """Look into every collection that is there, and print the counts."""
    print("| collection | files right | refused rightly | wrong | disks right | disks wrong | fields that differ |")
    print("|---|---|---|---|---|---|---|")
    said = []
    for name, (ending, look) in COLLECTIONS.items():
        for place in places(root, ending):
            counts = Counts()
            look(place, counts)
            if not counts.files:
                continue
            files, disks = counts.files, counts.disks
            differ = ", ".join(f"{one} {many}" for one, many in counts.fields.most_common())
            cells = (name, files["right"], files["refused"], files["wrong"], disks["right"], disks["wrong"], differ)
            print("| " + " | ".join(map(str, cells)) + " |")
            said.append((name, counts.said))
    for name, lines in said:
        for line in lines[:show]:
            print(f"{name}: {line}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
