# SPDX-License-Identifier: Apache-2.0
"""Knobs that are turned of QEMU's block layer: engine, cache, image, limits, and where the data come from."""

from functools import partial

from virtune.model.knob import AskDevice, AskSchema, Change, Choice, Knob, Layer, Number, Risk, Size, Text
from virtune.model.knobs.domains import COUNT, ON_OFF
from virtune.model.knobs.sources import (
    BHYVE,
    BLOCKBRIDGE,
    CEPH,
    CLOUD_HYPERVISOR,
    FIRECRACKER,
    FIRECRACKER_CACHE,
    IO_URING_PLANS,
    KUBEVIRT,
    KUBEVIRT_CODE,
    LIBVIRT_XML,
    NOVA_AIO_BUG,
    NOVA_AIO_SPEC,
    NOVA_CONFIG,
    PROXMOX_CHANGES,
    PROXMOX_CODE,
    PROXMOX_MANUAL,
    QCOW2_CACHE,
    QEMU_10_2,
    QEMU_11_0,
    QEMU_MAN,
    QEMU_QMP,
    RING_FLAGS,
    TRIED,
    VIRT_INSTALL,
    XEN,
    code,
    documented,
    posted,
    qemu_commit,
    tried,
    unverified,
    vendor,
)

_block = partial(Knob, layer=Layer.BLOCK)
"""In the order of the knowledge base."""

_image = partial(Knob, layer=Layer.BLOCK)


def _create(member: str) -> AskSchema:
    return AskSchema(command="blockdev-create", member=f"options.{member}", variant="qcow2")


def _open(member: str) -> AskSchema:
    return AskSchema(command="blockdev-add", member=member, variant="qcow2")


"""In the order of the knowledge base."""

_SLOW = "The wait is counted in rd/wr_total_time_ns and looks like a slow disk."
_throttle = partial(
    Knob,
    number="K61",
    layer=Layer.BLOCK,
    change=Change.LIVE,
    risk=Risk.PERFORMANCE,
    risk_note=_SLOW,
)


def _ask(member: str) -> AskSchema:
    return AskSchema(command="object-add", member=f"limits.{member}", variant="throttle-group")


"""In the order of the knowledge base."""

_datapath = partial(Knob, layer=Layer.BACKEND)
"""In the order of the knowledge base."""


KNOBS: tuple[Knob, ...] = (
    _block(
        id="disk.aio",
        number="K45",
        domain=Choice(values=("threads", "native", "io_uring")),
        default="threads",
        needs=(
            "native: disk.cache=none or directsync",
            "io_uring: QEMU 5.0 built with liburing, kernel 5.1, kernel.io_uring_disabled=0, libvirt 6.3",
        ),
        ask=AskSchema(command="blockdev-add", member="aio", variant="file"),
        change=Change.REPLUG,
        in_guest=Change.SWAP,
        risk=Risk.AVAILABILITY,
        risk_note=(
            "Known bad with io_uring: hangs in QEMU 7.1 and 10.1, up to 499 ms a request with IDE/AHCI in "
            "10.2.0 and 10.2.1."
        ),
        what=(
            "How QEMU hands I/O on a file or block device to the kernel. It has no effect on rbd, iscsi, nbd "
            "and other network drivers."
        ),
        why=(
            "native blocks the whole event loop when io_submit sleeps (sparse files); io_uring serves buffered "
            "I/O through slower kernel workers. Nobody has shown a general winner: measure. Before 10.2 QEMU "
            "fell back to threads without a message when io_uring was missing, so look at what runs. SQPOLL and "
            "IOPOLL are no knobs of QEMU: it creates its ring without flags in every version."
        ),
        spelled={
            "libvirt": "<driver io='threads|native|io_uring'/>",
            "qemu": "-blockdev driver=file,...,aio=",
            "proxmox": "aio= (default io_uring; native or threads on krbd with a cache, LVM, CIFS)",
            "kubevirt": "io: native | threads | default (no io_uring)",
            "openstack": "native forced on NFS, FC, iSCSI; [libvirt]use_default_aio_mode_for_volumes stops that",
            "cloud-hypervisor": "probes io_uring, then AIO, then sync",
            "firecracker": 'io_engine: "Sync" | "Async"',
        },
        source=(
            tried("`aio=native was specified, but it requires cache.direct=on`; the ring's flags are 0, SqThread -1"),
            posted(RING_FLAGS),
            code(PROXMOX_CODE),
            code(VIRT_INSTALL),
            documented(NOVA_AIO_SPEC),
            documented(NOVA_AIO_BUG),
            documented(QEMU_10_2),
            code(PROXMOX_CHANGES),
            documented(IO_URING_PLANS),
            vendor(BLOCKBRIDGE),
            documented(FIRECRACKER),
            documented(CLOUD_HYPERVISOR),
        ),
        place=("disk", "aio"),
    ),
    _block(
        id="disk.cache",
        number="K46",
        domain=Choice(values=("none", "writeback", "writethrough", "directsync", "unsafe")),
        default="writeback",
        needs=("none, directsync: a file system that knows O_DIRECT",),
        ask=AskSchema(command="blockdev-add", member="cache.direct", variant="file"),
        change=Change.REPLUG,
        in_guest=Change.SWAP,
        risk=Risk.DATA,
        risk_note=(
            "`unsafe` ignores flushes: a power cut or a crash of the host loses data that the guest believes written."
        ),
        what=(
            "One word for three switches: whether the host's page cache is used (not with none, directsync), "
            "whether the guest sees a write cache (not with writethrough, directsync), whether flushes are "
            "ignored (unsafe). QEMU's default is writeback; virtune's stacks begin with none."
        ),
        why=(
            "none is predictable, and not free of caches: the guest must still flush. writeback honours flushes "
            "and is as safe as a disk with a cache; it uses the host's RAM as a cache for the guest, at the "
            "price of double caching, stalls and misleading measurements. writethrough and directsync "
            "acknowledge only what is durable. Can be changed live by blockdev-reopen, except for the switch "
            "that the guest sees."
        ),
        spelled={
            "libvirt": "<driver cache=/>",
            "qemu": "-blockdev ...,cache.direct=,cache.no-flush= + -device ...,write-cache=",
            "proxmox": "cache= (default none)",
            "kubevirt": "cache: (default none where O_DIRECT works, else writethrough)",
            "openstack": "[libvirt]disk_cachemodes = file=none,block=none",
            "xen": "direct-io-safe lets qdisk use O_DIRECT",
            "bhyve": "nocache is O_DIRECT; direct is O_SYNC",
            "cloud-hypervisor": "direct= (default off)",
            "firecracker": 'cache_type: "Unsafe" (default) | "Writeback"',
        },
        source=(
            tried("libvirt's mapping; cache.direct and cache.no-flush by blockdev-reopen"),
            documented(QEMU_MAN),
            documented(KUBEVIRT),
            documented(NOVA_CONFIG),
            documented(XEN),
            documented(BHYVE),
            documented(FIRECRACKER_CACHE),
        ),
        place=("disk", "cache"),
    ),
    _block(
        id="disk.discard",
        number="K58",
        domain=Choice(values=("ignore", "unmap")),
        default="ignore",
        ask=AskSchema(command="blockdev-add", member="discard", variant="file"),
        change=Change.LIVE,
        in_guest=Change.REPLUG,
        risk=Risk.DATA,
        risk_note=(
            "What a guest deletes is gone: no undelete. QEMU 11.0.0 corrupts qcow2 when a discard meets a "
            "copy-on-write."
        ),
        what="Whether a guest's discard frees space below.",
        why=(
            "Gives space back and reduces the wear of SSDs. It fragments the image, causes bursts of discards "
            "at fstrim, and undoes preallocation."
        ),
        spelled={
            "libvirt": "<driver discard='unmap'/>",
            "qemu": "-blockdev ...,discard=unmap, QMP blockdev-reopen",
            "proxmox": "discard=on",
            "kubevirt": "always unmap, except for volumes in the ignore list",
            "openstack": "[libvirt]hw_disk_discard",
            "xen": "discard | no-discard (default discard)",
        },
        source=(
            tried("live by blockdev-reopen"),
            documented(QEMU_MAN),
            code(VIRT_INSTALL),
            code(KUBEVIRT_CODE),
            documented(XEN),
            code(PROXMOX_CHANGES),
        ),
        place=("disk", "discard"),
    ),
    _block(
        id="disk.detect_zeroes",
        number="K59",
        domain=Choice(values=("off", "on", "unmap")),
        default="off",
        needs=("unmap: disk.discard=unmap",),
        ask=AskSchema(command="blockdev-add", member="detect-zeroes", variant="file"),
        change=Change.LIVE,
        in_guest=Change.SWAP,
        risk=Risk.PERFORMANCE,
        risk_note="Every buffer that is written is scanned.",
        what="Whether writes of zeroes are recognised and not written.",
        why=(
            "Zero-filled buffers of a benchmark become no-ops, and the result absurd. Proxmox has it on by "
            "default, QEMU and libvirt have it off. libvirt takes unmap as on while discard is ignored."
        ),
        spelled={
            "libvirt": "<driver detect_zeroes='unmap'/>",
            "qemu": "-blockdev ...,detect-zeroes=, QMP blockdev-reopen",
            "proxmox": "detect_zeroes=0 | 1 (default 1)",
        },
        source=(
            tried("unmap without discard=unmap is refused; live by blockdev-reopen"),
            documented(QEMU_MAN),
            code(PROXMOX_CODE),
        ),
        place=("disk", "detect_zeroes"),
    ),
    _image(
        id="disk.format",
        number="K47",
        domain=Choice(values=("raw", "qcow2")),
        default="raw",
        ask=AskSchema(command="blockdev-add", member="driver"),
        change=Change.OFFLINE,
        in_guest=Change.SWAP,
        risk=Risk.DATA,
        risk_note="Converting loses internal snapshots; a format that is guessed wrong damages the image.",
        what="The format of the image.",
        why=(
            "raw has no metadata; qcow2 brings snapshots, thin images, compression, bitmaps. What is left of "
            "the gap is the first write of each cluster, misses of the L2 cache, and one lock for metadata. "
            "The often quoted 10 % comes from slides of 2013."
        ),
        spelled={
            "libvirt": "<driver type='raw|qcow2'/>",
            "qemu": "-blockdev driver=raw|qcow2; qemu-img convert, or blockdev-mirror while it runs",
            "proxmox": "format=",
            "xen": "format=raw | qcow | qcow2 | vhd | qed",
        },
        source=(
            documented(PROXMOX_MANUAL),
            qemu_commit("af39bd0d9a88"),
            documented(XEN),
            unverified("that allocated qcow2 with enough cache is close to raw: measure"),
        ),
        place=("disk", "format"),
    ),
    _image(
        id="disk.cluster_size",
        number="K48",
        domain=Size(low=512, high=2 * 1024**2, power_of_two=True),
        default="64k",
        needs=("disk.format=qcow2",),
        ask=_create("cluster-size"),
        change=Change.OFFLINE,
        in_guest=Change.SWAP,
        what="The unit in which qcow2 allocates.",
        why=(
            "Larger clusters mean less metadata and less fragmentation, and a copy of a whole cluster at a "
            "partial first write."
        ),
        spelled={"qemu": "qemu-img create -o cluster_size="},
        source=(tried("range and default"),),
        place=("disk", "cluster_size"),
    ),
    _image(
        id="disk.extended_l2",
        number="K49",
        domain=ON_OFF,
        default="off",
        needs=("QEMU 5.2", "disk.format=qcow2", "disk.cluster_size of at least 16k"),
        ask=_create("extended-l2"),
        change=Change.OFFLINE,
        in_guest=Change.SWAP,
        risk=Risk.AVAILABILITY,
        risk_note="An older QEMU cannot open the image. The L2 tables take twice the space.",
        what="Whether a cluster is divided into 32 parts that are allocated one by one.",
        why=(
            "With 128k clusters the parts are 4k, and 4k writes that allocate copy nothing. A change of the "
            "same release, which no longer copies clusters of zeroes, gave about 5 times the IOPS where it "
            "applies."
        ),
        spelled={"qemu": "qemu-img create -o extended_l2=on"},
        source=(tried("the error below 16k clusters"), qemu_commit("46cd1e8a4752")),
        place=("disk", "extended_l2"),
    ),
    _image(
        id="disk.l2_cache_size",
        number="K50",
        domain=Size(low=512, high=2**40),
        default="(up to 32 MiB: enough for 256 GiB in 64k clusters)",
        needs=("disk.format=qcow2",),
        ask=_open("l2-cache-size"),
        change=Change.LIVE,
        in_guest=Change.SWAP,
        risk=Risk.PERFORMANCE,
        risk_note="RAM of the host for each image and each of its backing files.",
        what="How much of qcow2's L2 tables QEMU keeps in RAM.",
        why=(
            "Needed: disk size x 8 / cluster size, twice that with extended_l2. Random reads of 40 GB: 6,545 "
            "IOPS with 1 MB of cache, 55,680 with the full 5 MB."
        ),
        spelled={
            "libvirt": (
                "<driver><metadata_cache><max_size unit='MiB'>64</max_size></metadata_cache></driver> (7.0; sets "
                "cache-size)"
            ),
            "qemu": "-blockdev driver=qcow2,...,l2-cache-size=, QMP blockdev-reopen",
        },
        source=(tried("live by blockdev-reopen"), documented(QCOW2_CACHE), qemu_commit("af39bd0d9a88")),
        place=("disk", "l2_cache_size"),
    ),
    _image(
        id="disk.preallocation",
        number="K51",
        domain=Choice(values=("off", "metadata", "falloc", "full")),
        default="off",
        needs=("metadata: disk.format=qcow2",),
        ask=_create("preallocation"),
        change=Change.OFFLINE,
        in_guest=Change.SWAP,
        risk=Risk.AVAILABILITY,
        risk_note="falloc and full take the whole size at once.",
        what="How much of the image is allocated when it is made.",
        why=(
            "falloc and full remove the cost of first writes and the surprise of a full disk, and keep "
            "aio=native from blocking. On btrfs and ZFS `full` does not last."
        ),
        spelled={
            "libvirt": "<volume><allocation>",
            "qemu": "qemu-img create -o preallocation=",
            "proxmox": "storage property preallocation (default metadata, unverified)",
            "openstack": "[DEFAULT]preallocate_images=space (unverified)",
        },
        source=(tried("the values of raw and qcow2"), unverified("Proxmox's default and OpenStack's option")),
        place=("disk", "preallocation"),
    ),
    _image(
        id="disk.lazy_refcounts",
        number="K52",
        domain=ON_OFF,
        default="off",
        needs=("disk.format=qcow2",),
        ask=_open("lazy-refcounts"),
        change=Change.LIVE,
        in_guest=Change.SWAP,
        risk=Risk.AVAILABILITY,
        risk_note="After a crash `qemu-img check -r all` has to run first.",
        what="Whether qcow2 puts off updating its reference counts.",
        why="Faster allocating writes with writethrough and directsync.",
        spelled={"qemu": "qemu-img create -o lazy_refcounts=on, -blockdev driver=qcow2,...,lazy-refcounts=on"},
        source=(tried("live by blockdev-reopen"), documented(QEMU_MAN)),
        place=("disk", "lazy_refcounts"),
    ),
    _throttle(
        id="disk.throttle_iops",
        domain=Number(low=1, high=10**9, unit="IOPS"),
        default="(no limit)",
        ask=_ask("iops-total"),
        what="The most I/Os a second, reads and writes together.",
        why="The first thing to look for on a cloud VM that is slow. Exclusive with limits on reads or writes alone.",
        spelled={
            "libvirt": "<iotune><total_iops_sec>, virsh blkdeviotune --live",
            "qemu": "-object throttle-group,x-iops-total= + -blockdev driver=throttle, QMP block_set_io_throttle",
            "proxmox": "iops=",
            "openstack": "flavor quota:disk_total_iops_sec",
            "cloud-hypervisor": "ops_size=, ops_refill_time=",
            "firecracker": "rate_limiter",
        },
        source=(
            tried(
                "live, by the QOM path /machine/peripheral/ID/virtio-backend; total and read or write are exclusive"
            ),
            documented(LIBVIRT_XML),
            code("QEMU, block accounting"),
        ),
        in_guest=Change.SWAP,
        place=("disk", "throttle_iops"),
    ),
    _throttle(
        id="disk.throttle_bps",
        domain=Size(low=1, high=2**50),
        default="(no limit)",
        ask=_ask("bps-total"),
        what="The most bytes a second, reads and writes together.",
        why=(
            "QEMU's documentation calls 2 MB/s the safe minimum, for whole requests. Exclusive with limits "
            "on reads or writes alone."
        ),
        spelled={
            "libvirt": "<iotune><total_bytes_sec>, virsh blkdeviotune --live",
            "qemu": "-object throttle-group,x-bps-total= + -blockdev driver=throttle, QMP block_set_io_throttle",
            "proxmox": "mbps=",
            "openstack": "flavor quota:disk_total_bytes_sec",
            "cloud-hypervisor": "bw_size=, bw_refill_time=",
            "firecracker": "rate_limiter",
        },
        source=(
            tried("live, by the QOM path /machine/peripheral/ID/virtio-backend"),
            documented(QEMU_MAN),
            documented(LIBVIRT_XML),
        ),
        in_guest=Change.SWAP,
        place=("disk", "throttle_bps"),
    ),
    _throttle(
        id="disk.throttle_iops_read",
        domain=COUNT,
        default="0",
        ask=_ask("iops-read"),
        what="The most reads a second; 0 no limit.",
        why="Exclusive with the limit on the sum.",
        spelled={
            "libvirt": "<iotune><read_iops_sec>",
            "qemu": "throttle-group x-iops-read=",
            "proxmox": "iops_rd=",
            "openstack": "flavor quota:disk_read_iops_sec",
        },
        source=(TRIED, documented(LIBVIRT_XML)),
        in_guest=Change.SWAP,
        place=("disk", "throttle_iops_read"),
    ),
    _throttle(
        id="disk.throttle_iops_write",
        domain=COUNT,
        default="0",
        ask=_ask("iops-write"),
        what="The most writes a second; 0 no limit.",
        why="Exclusive with the limit on the sum.",
        spelled={
            "libvirt": "<iotune><write_iops_sec>",
            "qemu": "throttle-group x-iops-write=",
            "proxmox": "iops_wr=",
            "openstack": "flavor quota:disk_write_iops_sec",
        },
        source=(TRIED, documented(LIBVIRT_XML)),
        in_guest=Change.SWAP,
        place=("disk", "throttle_iops_write"),
    ),
    _throttle(
        id="disk.throttle_bps_read",
        domain=Size(low=0, high=2**50),
        default="0",
        ask=_ask("bps-read"),
        what="The most bytes read a second; 0 no limit.",
        why="Exclusive with the limit on the sum.",
        spelled={
            "libvirt": "<iotune><read_bytes_sec>",
            "qemu": "throttle-group x-bps-read=",
            "proxmox": "mbps_rd=",
            "openstack": "flavor quota:disk_read_bytes_sec",
        },
        source=(TRIED, documented(LIBVIRT_XML)),
        in_guest=Change.SWAP,
        place=("disk", "throttle_bps_read"),
    ),
    _throttle(
        id="disk.throttle_bps_write",
        domain=Size(low=0, high=2**50),
        default="0",
        ask=_ask("bps-write"),
        what="The most bytes written a second; 0 no limit.",
        why="Exclusive with the limit on the sum.",
        spelled={
            "libvirt": "<iotune><write_bytes_sec>",
            "qemu": "throttle-group x-bps-write=",
            "proxmox": "mbps_wr=",
            "openstack": "flavor quota:disk_write_bytes_sec",
        },
        source=(TRIED, documented(LIBVIRT_XML)),
        in_guest=Change.SWAP,
        place=("disk", "throttle_bps_write"),
    ),
    _datapath(
        id="disk.export",
        number="K76",
        domain=Choice(values=("nbd", "fuse", "vhost-user-blk")),
        default="nbd",
        needs=("fuse: QEMU 6.0 built with it, /dev/fuse", "vhost-user-blk: QEMU 5.2, and virtune-load to load it"),
        ask=AskSchema(command="block-export-add", member="type"),
        change=Change.REPLUG,
        what=(
            "How qemu-storage-daemon offers the disk: over an NBD socket, as a file by FUSE, or as the virtqueues of "
            "a guest's disk by vhost-user-blk."
        ),
        why=(
            "The export is what virtune loads when it measures without a guest. vhost-user-blk is what a "
            "guest's virtio disk sees, without the guest's own cost: 4 KiB random reads at depth 32 ran at 50 "
            "to 78 thousand IOPS in a trial where NBD and FUSE gave 24 to 42. The daemon also exports VDUSE "
            "(7.1). The export itself is part of what is measured: compare within one kind only. The FUSE export of "
            "QEMU 7.2 and of 10.0 does not keep data: of several writes in flight some land in the place of others, "
            "as `--check-data` shows."
        ),
        spelled={"qemu": "qemu-storage-daemon --export nbd | fuse | vhost-user-blk | vduse-blk"},
        source=(
            tried("nbd, fuse and vhost-user-blk of one daemon, in alternation"),
            tried("2 and 16 writes in flight on the FUSE exports of QEMU 7.2.22 and 10.0.2, read back"),
            code("QEMU, qapi/block-export.json"),
            documented(QEMU_QMP),
        ),
        place=("export",),
    ),
    _datapath(
        id="export.num_queues",
        number="K76",
        domain=Number(low=1, high=65535),
        default="1",
        needs=("disk.export=vhost-user-blk",),
        ask=AskSchema(command="block-export-add", member="num-queues", variant="vhost-user-blk"),
        change=Change.REPLUG,
        what="How many virtqueues a vhost-user-blk export offers.",
        why=(
            "A guest uses one queue for each vCPU; a load with numjobs=N uses up to N. With numjobs=4, arms "
            "with 1, 2 and 4 queues have the same number of I/Os in flight. One thread serves all queues, so "
            "more queues alone use no more host CPU."
        ),
        spelled={"qemu": "--export vhost-user-blk,...,num-queues=4"},
        source=(
            tried("the server answers GET_QUEUE_NUM with it; 1, 2 and 3 queues"),
            code("QEMU, qapi/block-export.json"),
        ),
        place=("num_queues",),
    ),
    _datapath(
        id="export.iothread",
        number="K76",
        domain=ON_OFF,
        default="(on for vhost-user-blk in virtune; off for nbd and fuse: the daemon's main loop)",
        needs=(
            "QEMU 5.2",
            "nbd: a QEMU newer than 7.2",
            "several IOThreads: later than 10.0, probably 11.0 (unverified)",
        ),
        ask=AskSchema(command="block-export-add", member="iothread"),
        change=Change.REPLUG,
        risk=Risk.AVAILABILITY,
        risk_note="With an NBD export QEMU 7.2 aborts when a client disconnects, so virtune refuses both together.",
        what="Whether an IOThread serves the export of qemu-storage-daemon, or the daemon's main loop.",
        why=(
            "An IOThread polls, the main loop does not. The author of the patch measured, for FUSE with 4 "
            "threads and random aio: reads +27 %, writes +186 %, sync -1 to -11 %."
        ),
        spelled={"qemu": "--object iothread,id=ID --export ...,iothread=ID (newer: a list of ids)"},
        source=(
            tried("vhost-user-blk and fuse in an IOThread; the abort of nbd in one"),
            tried("the schemas of 7.2.22 and 10.0.2: an export takes one IOThread, and maps no queues"),
            posted("the series for multi-threaded FUSE exports"),
            documented(QEMU_11_0),
            unverified("in which release several threads are"),
        ),
        place=("iothread",),
    ),
    _datapath(
        id="storage.vfio_pci",
        number="K80",
        domain=Text(shape="PCI address, as 0000:01:00.0, or target for the drive of --target"),
        default="(none)",
        needs=("an IOMMU", "a whole function or an SR-IOV VF", "all of the guest's RAM pinned"),
        ask=AskDevice(device="vfio-pci", property="host"),
        change=Change.POWEROFF,
        risk=Risk.AVAILABILITY,
        risk_note="No overcommitted RAM, no balloon, no live migration, no snapshots.",
        what="The guest drives a real NVMe disk.",
        why="Nearest to bare metal. What remains are interrupts and idle exits. No statistics of QEMU.",
        spelled={
            "libvirt": "<hostdev mode='subsystem' type='pci' managed='yes'>",
            "qemu": "-device vfio-pci",
            "proxmox": "hostpciN",
            "kubevirt": "hostDevices",
            "openstack": "flavor pci_passthrough:alias",
        },
        source=(documented(LIBVIRT_XML), code("QEMU, block statistics")),
        place=("device", "vfio_pci"),
    ),
    _datapath(
        id="disk.backend",
        number="K83",
        domain=Choice(values=("file", "null-co", "rbd")),
        default="file",
        ask=AskSchema(command="blockdev-add", member="driver"),
        change=Change.REPLUG,
        risk=Risk.DATA,
        risk_note="null-co keeps nothing of what is written.",
        what=(
            "What the disk rests on: a file, null-co, which answers without any storage, or rbd, Ceph's librbd "
            "inside QEMU (disk.rbd names the pool)."
        ),
        why=(
            "null-co shows the ceiling of the way through QEMU: latency of the disk minus latency of null-co "
            "is the share of storage. Reads of known zeroes never reach it, so virtune leaves read-zeroes "
            "off."
        ),
        spelled={
            "libvirt": "qemu:commandline only",
            "qemu": "-blockdev driver=null-co,size=1073741824 (plain bytes: 1G makes QEMU exit)",
        },
        source=(tried("size must be plain bytes"), tried("rbd on a cluster of one monitor and one OSD")),
        place=("disk", "backend"),
    ),
    _datapath(
        id="disk.rbd",
        number="K83",
        domain=Text(shape="POOL[/NAMESPACE][:id=USER][:conf=FILE]"),
        default="none",
        needs=("disk.backend=rbd", "QEMU's rbd driver (Debian: qemu-block-extra)", "the program rbd (ceph-common)"),
        ask=AskSchema(command="blockdev-add", member="pool", variant="rbd"),
        change=Change.REPLUG,
        what=(
            "The pool of a Ceph cluster in which virtune makes an image for the run, from its scratch image; it is "
            "removed after the run, and nothing else in the pool is read or written."
        ),
        why=(
            "Most disks under Proxmox and OpenStack are RBD images that QEMU opens by librbd, without a device of "
            "the host: aio= means nothing there, and cache= switches librbd's own cache. A run that is killed "
            "leaves its image, named virtune-run-...: `rbd rm` removes it."
        ),
        spelled={
            "qemu": "-blockdev driver=rbd,pool=,image=,conf=,user=",
            "libvirt": "<disk type='network'><source protocol='rbd' name='POOL/IMAGE'/>",
        },
        source=(tried("a cluster of one monitor and one OSD"), documented(CEPH)),
        place=("disk", "rbd"),
    ),
    _datapath(
        id="disk.null_latency_ns",
        number="K83",
        domain=Number(low=0, high=60 * 10**9, unit="ns"),
        default="0",
        needs=("disk.backend=null-co",),
        ask=AskSchema(command="blockdev-add", member="latency-ns", variant="null-co"),
        change=Change.REPLUG,
        in_guest=Change.SWAP,
        what="How long null-co waits before it answers.",
        why="A device of known latency: what is measured above it is the way through QEMU.",
        spelled={"qemu": "-blockdev driver=null-co,latency-ns="},
        source=(tried("2 ms asked, 2.21 to 2.29 ms measured at depth 1"),),
        place=("disk", "null_latency_ns"),
    ),
)
