# SPDX-License-Identifier: Apache-2.0
"""Knobs of the image: its format, qcow2's options and caches, allocation, encryption (K47..K57, K63, K64)."""

from functools import partial

from virtune.model.knob import AskSchema, Change, Choice, Knob, Layer, Number, Risk, Size, Text
from virtune.model.knobs.domains import BYTES, COUNT, ON_OFF, SECONDS
from virtune.model.knobs.sources import (
    LIBVIRT_NEWS,
    LIBVIRT_XML,
    PROXMOX_MANUAL,
    QCOW2_CACHE,
    QEMU_MAN,
    QEMU_QMP,
    XEN,
    documented,
    qemu_commit,
    tried,
    unverified,
)

_knob = partial(Knob, layer=Layer.BLOCK)


def _create(member: str) -> AskSchema:
    return AskSchema(command="blockdev-create", member=f"options.{member}", variant="qcow2")


def _open(member: str) -> AskSchema:
    return AskSchema(command="blockdev-add", member=member, variant="qcow2")


KNOBS: tuple[Knob, ...] = (
    _knob(
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
    _knob(
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
    _knob(
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
    _knob(
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
    _knob(
        id="disk.cache_size",
        number="K50",
        domain=BYTES,
        default="(L2 and refcount caches by their own rules)",
        needs=("disk.format=qcow2",),
        ask=_open("cache-size"),
        change=Change.LIVE,
        what="The L2 cache and the refcount cache together.",
        why="What libvirt's metadata_cache sets.",
        spelled={"libvirt": "<metadata_cache><max_size>", "qemu": "-blockdev driver=qcow2,...,cache-size="},
        source=(tried("libvirt's mapping"), documented(QCOW2_CACHE)),
    ),
    _knob(
        id="disk.l2_cache_entry_size",
        number="K50",
        domain=Size(low=512, high=2 * 1024**2, power_of_two=True),
        default="4k",
        needs=("disk.format=qcow2", "QEMU 4.0 for this default"),
        ask=_open("l2-cache-entry-size"),
        change=Change.REPLUG,
        what="How much of an L2 table is loaded at once.",
        why="Small entries load faster and let a small cache reach further.",
        spelled={"qemu": "-blockdev driver=qcow2,...,l2-cache-entry-size="},
        source=(documented(QCOW2_CACHE), qemu_commit("af39bd0d9a88")),
    ),
    _knob(
        id="disk.refcount_cache_size",
        number="K50",
        domain=BYTES,
        default="(4 clusters)",
        needs=("disk.format=qcow2",),
        ask=_open("refcount-cache-size"),
        change=Change.REPLUG,
        what="How much of qcow2's reference counts QEMU keeps in RAM.",
        why="Used when clusters are allocated; seldom worth raising.",
        spelled={"qemu": "-blockdev driver=qcow2,...,refcount-cache-size="},
        source=(documented(QCOW2_CACHE),),
    ),
    _knob(
        id="disk.cache_clean_interval",
        number="K50",
        domain=SECONDS,
        default="600",
        needs=("disk.format=qcow2",),
        ask=_open("cache-clean-interval"),
        change=Change.LIVE,
        what="After how long unused entries of the L2 cache are dropped; 0 never.",
        why="Gives RAM back from images that are seldom read.",
        spelled={"qemu": "-blockdev driver=qcow2,...,cache-clean-interval="},
        source=(tried("live by blockdev-reopen"), documented(QCOW2_CACHE)),
    ),
    _knob(
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
    _knob(
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
    _knob(
        id="disk.refcount_bits",
        number="K53",
        domain=Number(low=1, high=64, power_of_two=True),
        default="16",
        needs=("disk.format=qcow2",),
        ask=_create("refcount-bits"),
        change=Change.OFFLINE,
        what="The width of qcow2's reference counts.",
        why="Only changes the size of metadata.",
        spelled={"qemu": "qemu-img create -o refcount_bits="},
        source=(documented(QEMU_MAN),),
    ),
    _knob(
        id="disk.compression_type",
        number="K54",
        domain=Choice(values=("zlib", "zstd")),
        default="zlib",
        needs=("disk.format=qcow2",),
        ask=_create("compression-type"),
        change=Change.OFFLINE,
        what="How qcow2's compressed clusters are packed.",
        why="Matters to reads of compressed clusters only.",
        spelled={"qemu": "qemu-img create -o compression_type="},
        source=(documented(QEMU_MAN),),
    ),
    _knob(
        id="disk.data_file",
        number="K55",
        domain=Text(shape="file or block device"),
        default="(none: data is in the image)",
        needs=("QEMU 4.0, libvirt 10.10", "disk.format=qcow2"),
        ask=_open("data-file"),
        change=Change.OFFLINE,
        risk=Risk.AVAILABILITY,
        risk_note="Two files that must stay together.",
        what="Keeps the guest's data in a raw file or LV beside the qcow2 metadata.",
        why="Gives dirty bitmaps, while the data takes the same way as with raw.",
        spelled={"libvirt": "<source><dataStore>", "qemu": "qemu-img create -o data_file="},
        source=(documented(LIBVIRT_NEWS), documented(QEMU_MAN)),
    ),
    _knob(
        id="disk.data_file_raw",
        number="K55",
        domain=ON_OFF,
        default="off",
        needs=("disk.data_file",),
        ask=_create("data-file-raw"),
        change=Change.OFFLINE,
        what="Whether the data file can be read as a raw image by itself.",
        why="Keeps a way out of qcow2 open.",
        spelled={"qemu": "qemu-img create -o data_file_raw=on"},
        source=(documented(QEMU_MAN),),
    ),
    _knob(
        id="disk.backing_chain",
        number="K56",
        domain=COUNT,
        default="0",
        ask=_open("backing"),
        change=Change.LIVE,
        risk=Risk.AVAILABILITY,
        risk_note="Shortening a chain is a block job with its own load.",
        what="How many backing files lie below the image.",
        why=(
            "A read of what is not allocated walks the chain; a first write copies a cluster. More than one "
            "or two layers in production are worth a blockcommit or blockpull."
        ),
        spelled={"libvirt": "virsh blockcommit | blockpull", "qemu": "qemu-img info --backing-chain"},
        source=(documented(QEMU_MAN),),
    ),
    _knob(
        id="disk.encryption",
        number="K57",
        domain=Choice(values=("none", "luks")),
        default="none",
        ask=AskSchema(command="blockdev-add", member="key-secret", variant="luks"),
        change=Change.OFFLINE,
        risk=Risk.SECURITY,
        risk_note="Without it, whoever has the medium has the data.",
        what="Whether QEMU encrypts the image (LUKS), or the host does (dm-crypt), or nobody.",
        why="In QEMU it is CPU work in the one thread of the disk, unless its queues are spread: measure.",
        spelled={
            "libvirt": "<encryption format='luks'>",
            "qemu": "-blockdev driver=luks, or qcow2 encrypt.format=luks",
        },
        source=(documented(LIBVIRT_XML), unverified("what it costs")),
    ),
    _knob(
        id="disk.extent_size_hint",
        number="K63",
        domain=BYTES,
        default="1M",
        needs=("disk.format=raw on XFS", "QEMU 5.2 for this default"),
        ask=AskSchema(command="blockdev-create", member="options.extent-size-hint", variant="file"),
        change=Change.OFFLINE,
        what="In which units XFS allocates the image file.",
        why="Less fragmentation.",
        spelled={"qemu": "qemu-img create -f raw -o extent_size_hint="},
        source=(documented(QEMU_MAN),),
    ),
    _knob(
        id="disk.nocow",
        number="K63",
        domain=ON_OFF,
        default="off",
        needs=("an image file on btrfs",),
        ask=AskSchema(command="blockdev-create", member="options.nocow", variant="file"),
        change=Change.OFFLINE,
        risk=Risk.DATA,
        risk_note="btrfs keeps no checksums of the file's data.",
        what="Makes the image without copy-on-write on btrfs.",
        why="Less fragmentation, and direct writes stay direct (see btrfs.nodatacow).",
        spelled={"qemu": "qemu-img create -o nocow=on"},
        source=(documented(QEMU_MAN),),
    ),
    _knob(
        id="disk.preallocate_filter",
        number="K64",
        domain=ON_OFF,
        default="off",
        needs=("QEMU 6.0",),
        ask=AskSchema(command="blockdev-add", member="prealloc-size", variant="preallocate"),
        change=Change.REPLUG,
        what="A filter that allocates ahead of the writes.",
        why="For file systems that allocate slowly. Not in libvirt.",
        spelled={"qemu": "-blockdev driver=preallocate"},
        source=(documented(QEMU_QMP),),
    ),
)
"""In the order of the knowledge base."""
