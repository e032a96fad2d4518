# SPDX-License-Identifier: Apache-2.0
"""What every way to a guest agent promises. Subclass it and give `guest`."""

import time

import pytest

from virtune.bench.guest.agent import AgentGuest, GuestError


class AgentContract:
    """Words, bytes and deadlines, whatever carries them."""

    def test_words_bytes_and_statuses_come_whole_through_the_agent(self, guest: AgentGuest) -> None:
        for word in ("plain", "a b", "$HOME `id`", "quo'te\"s", "back\\slash", "new\nline", "ünï", "-n", ""):
            output = guest.run(["printf", "%s", word], timeout_seconds=120)
            assert (output.status, output.stdout, output.stderr) == (0, word.encode(), b"")
        output = guest.run(["sh", "-c", "echo out; echo err >&2; exit 7"], timeout_seconds=120)
        assert (output.status, output.stdout, output.stderr) == (7, b"out\n", b"err\n")
        assert guest.run(["no-such-program"], timeout_seconds=120).status == 127
        content = bytes(range(256)) * 5 * 1024  # more than is read at once
        guest.put("/run/bytes", content, timeout_seconds=60)
        assert guest.get("/run/bytes", timeout_seconds=60) == content
        guest.run(["rm", "/run/bytes"], timeout_seconds=120)
        with pytest.raises(GuestError, match="cannot read /run/none"):
            guest.get("/run/none", timeout_seconds=120)

    def test_a_deadline_holds_and_a_program_is_ended(self, guest: AgentGuest) -> None:
        # on a busy host the agent itself may not answer in time, which is the same deadline
        with pytest.raises(GuestError, match=r"did not answer (within|in time)"):
            guest.run(["sleep", "3"], timeout_seconds=0.3)
        process = guest.start(["sleep", "1000"], timeout_seconds=120)
        guest.run(["kill", "-STOP", str(process.pid)], timeout_seconds=120)
        begun = time.monotonic()
        process.end("INT")
        ended = process.wait(0)
        assert ended is not None
        assert ended.status > 128
        assert time.monotonic() - begun < 60

    def test_much_output_and_what_is_read_come_whole(self, guest: AgentGuest) -> None:
        much = guest.run(["sh", "-c", "head -c 3000000 /dev/zero"], timeout_seconds=60).stdout
        assert much == bytes(3_000_000)
        read = guest.start(["cat"], timeout_seconds=120, stdin=b"\0read\xff").wait(120)
        assert read is not None
        assert read.stdout == b"\0read\xff"
