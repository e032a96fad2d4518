# SPDX-License-Identifier: Apache-2.0
"""Look into a disk's images outside of the stack that wrote them: by this process, or by qemu-img."""

import json
from collections.abc import Sequence
from pathlib import Path

from virtune import shell
from virtune.bench.port import DiskImageSpec
from virtune.bench.scratch import drop_cache
from virtune.fio.data_check import Region
from virtune.model.errors import RigError
from virtune.model.stack import Stack

_COPY_SECONDS = 120.0


def loaded_images(stack: Stack, ground: DiskImageSpec) -> tuple[Path, ...]:
    """Return the images that the load of a stack was on: those of its disks, or of its guests that load."""
    further = ground.further[: stack.guests - 1] if stack.own_images else ground.further
    second = ground.second if stack.guests > 1 else None
    return tuple(dict.fromkeys(one for one in (ground.image, second, *further) if one is not None))


def readable_outside(stack: Stack) -> bool:
    """Whether an image tells the place of each block: where a guest's filesystem put its file is not known here, and
    what a guest drives itself is on no image.
    """
    own = stack.device.vfio_pci is not None
    return stack.disk.filesystem == "none" and stack.disk.backend == "file" and not own


def difference_outside(
    stack: Stack, images: Sequence[Path], regions: Sequence[Region], mark: str, directory: Path
) -> str | None:
    """Return where an image holds something else than the pattern, None where none does. qcow2 images are read
    through files in the directory. Raises RigError when an image cannot be read.
    """
    for image in images:
        drop_cache(image)
        for region in (place for one in regions for place in one.each()):
            try:
                if stack.disk.format == "raw":
                    at = _differs(image, region, mark, begin=region.offset)
                else:
                    at = _in_qcow2(image, stack.disk.format, region, mark, directory / "outside.raw")
            except OSError as error:
                raise RigError(f"cannot read {image}: {error.strerror}") from None
            if at is not None:
                return f"byte {at} of {image}"
    return None


def _differs(path: Path, region: Region, mark: str, *, begin: int) -> int | None:
    with path.open("rb") as file:
        file.seek(begin)
        return next((offset for offset, block in region.blocks(mark) if file.read(len(block)) != block), None)


def _in_qcow2(image: Path, kind: str, region: Region, mark: str, read: Path) -> int | None:
    # `qemu-img dd` takes count= for the end of what it copies, not for its length
    file = {"driver": kind, "file": {"driver": "file", "filename": str(image)}}
    part = json.dumps({"driver": "raw", "offset": region.offset, "size": region.size, "file": file})
    try:
        command = [shell.find("qemu-img"), "convert", "-O", "raw", f"json:{part}", str(read)]
        shell.run(command, timeout_seconds=_COPY_SECONDS)
        return _differs(read, region, mark, begin=0)
    except shell.CommandError as error:
        raise RigError(f"cannot read {image}: {error.message}", hint=error.hint) from None
    finally:
        read.unlink(missing_ok=True)
