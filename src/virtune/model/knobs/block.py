# SPDX-License-Identifier: Apache-2.0
"""Knobs of QEMU's block layer that apply to every format (K45, K46, K58..K62, K65, K66)."""

from functools import partial

from virtune.model.knob import AskDevice, AskSchema, Change, Choice, Knob, Layer, Risk, Text
from virtune.model.knobs.domains import ON_OFF
from virtune.model.knobs.sources import (
    BHYVE,
    BLOCKBRIDGE,
    CLOUD_HYPERVISOR,
    FIRECRACKER,
    FIRECRACKER_CACHE,
    IO_URING_PLANS,
    KUBEVIRT,
    KUBEVIRT_CODE,
    LIBVIRT_NEWS,
    LIBVIRT_XML,
    NOVA_AIO_BUG,
    NOVA_AIO_SPEC,
    NOVA_CONFIG,
    PROXMOX_CHANGES,
    PROXMOX_CODE,
    QEMU_10_2,
    QEMU_MAN,
    QEMU_QMP,
    RING_FLAGS,
    VIRT_INSTALL,
    XEN,
    code,
    documented,
    posted,
    tried,
    unverified,
    vendor,
)

_knob = partial(Knob, layer=Layer.BLOCK)

KNOBS: tuple[Knob, ...] = (
    _knob(
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
    _knob(
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
    _knob(
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
    _knob(
        id="disk.discard_no_unref",
        number="K58",
        domain=ON_OFF,
        default="off",
        needs=("QEMU 8.1, libvirt 9.5", "disk.format=qcow2"),
        ask=AskSchema(command="blockdev-add", member="discard-no-unref", variant="qcow2"),
        change=Change.OFFLINE,
        what="Whether qcow2 keeps its clusters mapped when the guest discards them.",
        why="Keeps the image from fragmenting.",
        spelled={
            "libvirt": "<driver discard_no_unref='on'/>",
            "qemu": "-blockdev driver=qcow2,...,discard-no-unref=on",
            "proxmox": "automatic for snapshot-as-volume-chain",
        },
        source=(documented(LIBVIRT_NEWS), unverified("whether blockdev-reopen takes it")),
    ),
    _knob(
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
    _knob(
        id="disk.copy_on_read",
        number="K60",
        domain=ON_OFF,
        default="off",
        ask=AskSchema(command="blockdev-add", member="file", variant="copy-on-read"),
        change=Change.REPLUG,
        risk=Risk.PERFORMANCE,
        risk_note="Reads become writes until the image is populated.",
        what="Whether what is read from a backing file is written to the top image.",
        why="Fills an image from its backing file while it is used.",
        spelled={"libvirt": "<driver copy_on_read='on'/>", "qemu": "-blockdev driver=copy-on-read"},
        source=(documented(LIBVIRT_XML),),
    ),
    _knob(
        id="disk.locking",
        number="K62",
        domain=Choice(values=("auto", "on", "off")),
        default="auto",
        ask=AskSchema(command="blockdev-add", member="locking", variant="file"),
        change=Change.REPLUG,
        risk=Risk.DATA,
        risk_note="Without the lock two programs can write one image and destroy it. virtune never recommends off.",
        what="Whether QEMU locks the image file.",
        why="Correctness only, no speed.",
        spelled={"qemu": "-blockdev driver=file,...,locking="},
        source=(documented(QEMU_QMP),),
    ),
    _knob(
        id="device.share_rw",
        number="K62",
        domain=ON_OFF,
        default="off",
        ask=AskDevice(device="virtio-blk-pci", property="share-rw"),
        change=Change.REPLUG,
        risk=Risk.DATA,
        risk_note="Two guests that write one disk destroy it unless their file system is made for that.",
        what="Whether others may write the disk at the same time.",
        why="Correctness only, no speed.",
        spelled={"libvirt": "<shareable/>", "qemu": "-device ...,share-rw=on"},
        source=(tried("the property and its default"), documented(LIBVIRT_XML)),
    ),
    _knob(
        id="disk.auto_read_only",
        number="K62",
        domain=ON_OFF,
        default="off",
        ask=AskSchema(command="blockdev-add", member="auto-read-only", variant="file"),
        change=Change.REPLUG,
        what="Whether QEMU may open the file read-only until something writes.",
        why="Correctness only, no speed.",
        spelled={"libvirt": "always on", "qemu": "-blockdev ...,auto-read-only=on"},
        source=(tried("libvirt writes it"), documented(QEMU_QMP)),
    ),
    _knob(
        id="disk.block_jobs",
        number="K65",
        domain=Text(shape="backup, mirror, commit, stream"),
        default="(none runs)",
        change=Change.LIVE,
        risk=Risk.PERFORMANCE,
        risk_note="Writes of the guest wait for copy-before-write.",
        what="Jobs that copy blocks while the guest runs; dirty bitmaps; Proxmox's backup fleecing.",
        why="A measurement while a job runs is invalid. query-block-jobs and `virsh blockjob` show them.",
        spelled={
            "libvirt": "virsh blockjob, domjobinfo",
            "qemu": "QMP query-block-jobs",
            "proxmox": "backup fleecing",
        },
        source=(documented(QEMU_QMP),),
    ),
    _knob(
        id="qemu.main_loop",
        number="K66",
        domain=Text(shape="not for users: QEMU chooses"),
        default="(io_uring from QEMU 10.2 on where it is there, epoll or poll before)",
        change=Change.POWEROFF,
        what="How QEMU's event loops wait. The version of QEMU decides it; no option changes it.",
        why=(
            "From 10.2 on, VMs with aio=threads or native depend on io_uring too. The ring has no flags: "
            "neither SQPOLL nor IOPOLL. An idle IOThread of 10.2 shows up as 100 % I/O pressure, which is "
            "accounting only."
        ),
        spelled={},
        source=(
            documented(QEMU_10_2),
            posted(RING_FLAGS),
            code(PROXMOX_CHANGES),
            unverified("what happens with io_uring_disabled=2"),
        ),
    ),
)
"""In the order of the knowledge base."""
