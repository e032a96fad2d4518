# SPDX-License-Identifier: Apache-2.0
"""What every store promises, whichever database it is in. A subclass gives `store` and says how SQL is run on it."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from tests.conftest import User
from tests.store.at_once import ATTEMPTS, AtOnce, alone, rows_of

from virtune.analyse.study.summarise import summarise
from virtune.analyse.trial.rejection import unsettled
from virtune.cli import run
from virtune.model.errors import StoreError, StorePlace, UsageError
from virtune.model.evidence import Capture, Changeover, Check, Damaged, InForce, Listed, TrialRecord
from virtune.model.measurement import METHOD, Histogram, Measurement
from virtune.model.remark import Remark, Weight
from virtune.model.stack import Disk, Stack
from virtune.model.study import Arm, Study, StudyKind, Trial
from virtune.model.workload import Job, Workload
from virtune.plan.codec import study_from_json
from virtune.store.store import Store

WORKLOAD = Workload(name="w", meaning="m", jobs=(Job(name="j", options=(("rw", "randread"),)),))
TRIALS = tuple(Trial(number=n, round=1 + n // 3, arm="ab"[n % 2], workload="w") for n in range(1, 5))
STUDY = Study(
    id="20260101-000000-aaaa",
    created="2026-01-01T00:00:00+00:00",
    kind=StudyKind.COMPARE,
    arms=(
        Arm(name="a", stack=Stack()),
        Arm(name="b", stack=Stack(disk=Disk(aio="native")), settings=(("disk.aio", "native"),)),
    ),
    baseline="a",
    workloads=(WORKLOAD,),
    rounds=2,
    seconds=1.0,
    ramp_seconds=0.5,
    seed=7,
    scratch="/x",
    span_bytes=1024,
    trials=TRIALS,
)
MEASURED = Measurement(
    values=(("iops", 1234.5), ("latency.mean", 1e6)),
    histogram=Histogram(bins=((100, 3), (200, 4))),
    remarks=(Remark(id="spread", weight=Weight.WARNING, text="t", advice="a"),),
)
CHECK = Check(setting="disk.aio", asked="native", found=None, proof="p")
CAPTURES = (Capture(name="fio.json", content=b'{"x": 1}' * 100), Capture(name="odd", content=bytes(range(256))))


def record(number: int, *, failure: str | None = None, attempt: int = 1) -> TrialRecord:
    return TrialRecord(
        trial=TRIALS[number - 1],
        attempt=attempt,
        ended="2026-01-01T00:00:01+00:00",
        in_force=InForce(checks=(CHECK,)),
        measurement=None if failure else MEASURED,
        failure=failure,
    )


def indexes(store: Store) -> dict[str, str]:
    """The indexes of a store's trials, with the condition of the rows that each holds; empty for all rows."""
    with store._backend.engine.connect() as db:
        return {
            str(one["name"]): "".join(
                str(text) for name, text in one.get("dialect_options", {}).items() if name.endswith("_where")
            )
            for one in sqlalchemy.inspect(db).get_indexes("trials")
        }


class StoreContract:
    """A subclass has a fixture `store` that holds STUDY."""

    NEWER = ""
    """What makes a store one of a newer virtune."""

    NO_STREAMS = ""
    """What makes every capture one that is not compressed."""

    def place_in_words(self, store: Store) -> str:
        """Return the place of a store as Python text."""
        return f"{type(store.place).__name__.replace('PosixPath', 'Path')}({str(store.place)!r})"

    def sql(self, store: Store, *statements: str) -> None:
        """Change the database behind the store's back."""
        raise NotImplementedError

    def empty(self, store: Store) -> StorePlace:
        """Return a place without a store."""
        raise NotImplementedError

    def require_sound(self, place: StorePlace) -> None:
        """Require the database to be whole and held by nobody."""
        raise NotImplementedError

    def test_it_gives_back_what_it_got(self, store: Store) -> None:
        store.add_trial(STUDY.id, record(1), CAPTURES)
        kept = store.get(STUDY.id)
        assert kept.study == STUDY
        assert kept.facts == '{"a": 1}'
        assert kept.trials == (record(1),)
        assert store.captures(STUDY.id, 1) == CAPTURES
        assert [trial.number for trial in kept.left] == [2, 3, 4]

    def test_trials_in_a_process_of_their_own_are_so_when_they_are_read_again(self, store: Store) -> None:
        asked = replace(STUDY, id="anew", trials=tuple(replace(one, restart=True) for one in TRIALS))
        store.add_study(asked, facts="")
        carried = Changeover(swapped="disk", seconds=0.1, process=7, carried=1)
        made = [replace(record(one.number), trial=one, in_force=InForce(changeover=carried)) for one in asked.trials]
        disturbed = replace(MEASURED, remarks=(Remark(id="cpu-wait", weight=Weight.INVALID, text="others"),))
        for one in (*made[:3], replace(made[3], measurement=disturbed)):
            store.add_trial(asked.id, one, ())
        kept = store.get(asked.id)
        assert tuple(one.trial for one in kept.trials) == asked.trials
        assert summarise(kept).basis[0].starts == len(asked.trials)
        assert unsettled(kept.attempts) == asked.trials[3]  # goes on in a process of its own

    def test_a_row_that_is_not_as_its_study_says_is_read_as_it_is(self, store: Store) -> None:
        store.add_trial(STUDY.id, replace(record(1), trial=replace(TRIALS[0], arm="a")), ())
        assert store.get(STUDY.id).trials[0].trial == replace(TRIALS[0], arm="a")

    def test_every_attempt_is_kept_and_the_last_one_counts(self, store: Store) -> None:
        store.add_trial(STUDY.id, record(1, failure="broke"), CAPTURES[:1])
        assert store.get(STUDY.id).left == TRIALS
        store.add_trial(STUDY.id, record(1, attempt=2), CAPTURES)
        kept = store.get(STUDY.id)
        assert [trial.attempt for trial in kept.trials] == [2]
        assert kept.trials[0].measurement == MEASURED
        (listed,) = store.list()
        assert isinstance(listed, Listed)
        assert (listed.done, listed.failed, listed.finished) == (1, 1, False)

    def test_a_newer_method_s_measurement_is_kept_beside_and_read_first(self, store: Store) -> None:
        store.add_trial(STUDY.id, replace(record(1), measurement=replace(MEASURED, method=METHOD - 1)), ())
        assert store.get(STUDY.id).trials[0].measurement == replace(MEASURED, method=METHOD - 1)
        better = replace(MEASURED, values=(("iops", 1.0),))
        store.add_measurement(STUDY.id, 1, better, attempt=1)
        assert store.get(STUDY.id).trials[0].measurement == better

    def test_what_a_later_virtune_derived_is_left_to_it(self, store: Store) -> None:
        store.add_trial(STUDY.id, record(1), ())
        later = replace(MEASURED, method=METHOD + 1, values=(("iops", 1.0),))
        store.add_measurement(STUDY.id, 1, later, attempt=1)
        assert store.get(STUDY.id).trials[0].measurement == MEASURED

    def test_studies_are_found_by_the_beginning_of_their_id_and_by_last(self, store: Store) -> None:
        store.add_study(replace(STUDY, id="20260102-000000-bbbb", created="2026-01-02T00:00:00+00:00"), facts="")
        assert store.find("last") == "20260102-000000-bbbb"
        assert store.find("20260101") == STUDY.id
        assert [listed.study.id for listed in store.list() if isinstance(listed, Listed)] == [
            "20260102-000000-bbbb",
            STUDY.id,
        ]
        with pytest.raises(UsageError, match="'2026' fits 2 studies"):
            store.find("2026")
        with pytest.raises(UsageError, match="no study 'x'"):
            store.find("x")

    def test_a_tag_finds_the_newest_study_with_it_of_this_host_first(self, store: Store) -> None:
        def tagged(study: Study) -> Study:
            return replace(study, title='"better"', tags=(*study.tags, "good"))

        with pytest.raises(UsageError, match=r"no study in .* has the tag 'good'"):
            store.find("@good")
        with pytest.raises(UsageError, match="is not finished"):
            store.label(STUDY.id, tagged)
        later = [replace(STUDY, id=f"2026010{n}-000000-bbbb", created=f"2026-01-0{n}T00:00:00+00:00") for n in (2, 3)]
        for one in later:
            store.add_study(one, facts="")
        with Store(store.place, host="web1") as other:
            newest = replace(STUDY, id="20260109-000000-cccc", created="2026-01-09T00:00:00+00:00")
            other.add_study(newest, facts="")
            other.finish(newest.id)
            other.label(newest.id, tagged)
        assert (store.find("@good"), store.host) == (newest.id, "web1"), "no other has it yet"
        store.host = ""
        for one in (STUDY, *later[:1]):
            store.finish(one.id)
            assert store.label(one.id, tagged).words == '"better" @good'
            assert (store.find("@good"), store.host) == (one.id, "")
        for word in ("better", "goo", "GOOD", "%", "", "good@", 'good","x'):
            with pytest.raises(UsageError, match="has the tag"):
                store.find(f"@{word}")

    def test_labels_of_those_who_give_them_at_once_are_all_kept(self, store: Store) -> None:
        store.finish(STUDY.id)

        def give(tag: str) -> None:
            with Store(store.place) as mine:
                mine.label(STUDY.id, lambda found: replace(found, tags=(*found.tags, tag)))

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(give, "abcdefgh"))
        assert {*store.get(STUDY.id).study.tags} == {*"abcdefgh"}

    def test_a_trial_that_is_killed_half_way_is_not_in_it_and_the_others_are(self, store: Store) -> None:
        store.add_trial(STUDY.id, record(1), CAPTURES)
        script = textwrap.dedent(f"""
            import os, sys
            sys.path.insert(0, {str(Path(__file__).parents[2])!r})
            from tests.store.store_contract import CAPTURES, STUDY, record
            from virtune.store.store import Store
            class Dying(list):
                def __iter__(self):
                    yield from super().__iter__()
                    os.kill(os.getpid(), {int(signal.SIGKILL)})
            from pathlib import Path
            from virtune.model.errors import DatabaseUrl
            with Store({self.place_in_words(store)}) as found:
                if sys.argv[1] == "trial":
                    found.add_trial(STUDY.id, record(2), Dying())
                attempts = Dying([(record(number), CAPTURES) for number in (2, 3)])
                found.merge(STUDY, attempts, facts=found.get(STUDY.id).facts, finished=True)
        """)
        for what in ("trial", "merge"):
            done = subprocess.run([sys.executable, "-c", script, what], env=os.environ, check=False)
            assert done.returncode == -signal.SIGKILL
            kept = store.get(STUDY.id)
            assert [trial.trial.number for trial in kept.trials] == [1]
            assert not kept.finished
        store.add_trial(STUDY.id, record(2), CAPTURES)
        assert len(store.get(STUDY.id).trials) == 2

    @pytest.mark.parametrize(
        ("seed", "kills"), [(1, 2), *(pytest.param(n, n % 6, marks=pytest.mark.long) for n in range(2, 40))]
    )
    def test_what_many_write_at_once_is_what_one_writes(
        self, store: Store, user: User, tmp_path_factory: pytest.TempPathFactory, seed: int, kills: int
    ) -> None:
        place, (paths, expected) = self.empty(store), alone(tmp_path_factory.getbasetemp())
        added = AtOnce(user, place, paths).go(seed=seed, kills=kills)
        assert added <= ATTEMPTS + 1 if kills else added == ATTEMPTS + 1
        for words in (*(("import", str(path)) for path in paths), ("derive",)):
            assert run([*words, "--store", str(place)]) == 0
        found = rows_of(place)
        for name, rows in expected.items():
            assert found[name] == rows, name
        self.require_sound(place)

    def test_an_attempt_is_kept_once_under_its_own_number(self, store: Store) -> None:
        assert store.add_trial(STUDY.id, record(1, attempt=3), CAPTURES)
        assert not store.add_trial(STUDY.id, record(1, attempt=3, failure="later"), CAPTURES[:1])
        assert store.get(STUDY.id).attempts == (record(1, attempt=3),)
        assert store.captures(STUDY.id, 1) == CAPTURES

    def test_a_merge_says_what_it_added_and_takes_no_other_attempt_for_its_own(self, store: Store) -> None:
        first, second = (record(1), CAPTURES), (record(1, attempt=2), CAPTURES[:1])
        facts = '{"a": 1}'
        assert store.merge(STUDY, [first], facts=facts, finished=False) == (1, False)
        assert store.merge(STUDY, [first, second], facts=facts, finished=False) == (1, False)
        assert store.merge(STUDY, [first, second], facts=facts, finished=False) == (0, False)
        assert store.merge(replace(STUDY, id="new"), [first, second], facts="", finished=True) == (2, True)
        later = (replace(record(2), ended="2026-01-01T00:09:01+00:00"), ())
        store.add_trial(STUDY.id, record(2), ())
        fresh = (record(3), CAPTURES)
        for study, said in (
            (STUDY, "has another attempt 1 at trial 2"),
            (replace(STUDY, created="x"), "has another study"),
        ):
            with pytest.raises(StoreError, match=said):
                store.merge(study, [fresh, later], facts=facts, finished=True)
        assert [one.trial.number for one in store.get(STUDY.id).attempts] == [1, 1, 2]
        assert not store.is_finished(STUDY.id)

    def test_those_who_merge_at_once_say_together_what_is_there(self, store: Store) -> None:
        every = [(record(number, attempt=attempt), CAPTURES) for number in (1, 2, 3, 4) for attempt in (1, 2, 3)]

        def merged(count: int) -> tuple[int, bool]:
            with Store(store.place) as mine:
                return mine.merge(replace(STUDY, id="new"), every[:count], facts="", finished=count == len(every))

        with ThreadPoolExecutor(6) as pool:
            said = list(pool.map(merged, (4, 12, 8, 12, 1, 12)))
        assert sum(added for added, _ in said) == len(every)
        assert sum(new for _, new in said) == 1
        assert store.get("new").attempts == tuple(one for one, _ in every)
        assert store.is_finished("new")

    def test_a_study_that_is_added_to_is_read_as_it_was_or_as_it_is(self, store: Store) -> None:
        """A search comes with its trials: a reader between the two would take them for trials of unknown arms."""
        arms = tuple(Arm(name=f"arm{number}", stack=Stack()) for number in range(40))
        over = threading.Event()
        read: list[int] = []

        def reader() -> None:
            with Store(store.place, reading=True) as other:
                while not over.is_set():
                    read.append(len(other.get(STUDY.id).attempts))

        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(reader)
            for number, arm in enumerate(arms, 1):
                grown = replace(STUDY, arms=(*STUDY.arms, *arms[:number]))
                trial = replace(record(1), trial=Trial(number=10 + number, round=1, arm=arm.name, workload="w"))
                store.merge(grown, [(trial, CAPTURES)], facts='{"a": 1}', finished=False)
            over.set()
            reading.result(60)
        assert read == sorted(read)
        assert len(set(read)) > 3, "nothing was read meanwhile"

    def test_damaged_records_and_captures_are_one_sentence(self, store: Store) -> None:
        store.add_trial(STUDY.id, record(1), CAPTURES)
        self.sql(store, self.NO_STREAMS, "update measurements set measurement = '{\"values\": 3}'")
        with pytest.raises(StoreError, match="damaged"):
            store.captures(STUDY.id, 1)
        with pytest.raises(StoreError, match="damaged"):
            store.get(STUDY.id)

    def test_a_store_of_a_newer_virtune_is_left_alone(self, store: Store) -> None:
        self.sql(store, self.NEWER)
        with pytest.raises(StoreError, match="written by a newer virtune"), Store(store.place):
            pytest.fail("opened")

    def test_indexes_from_which_a_list_counts_hold_only_their_rows(self, store: Store) -> None:
        made = indexes(store)
        assert "IS NULL" in made["trials_done"], "it holds all rows"
        assert "IS NOT NULL" in made["trials_failed"], "it holds all rows"

    def test_pages_are_the_newest_that_fit_and_words_have_no_case(self, store: Store) -> None:
        for number in range(2, 6):
            kind = StudyKind.CHECK if number == 3 else StudyKind.COMPARE
            title = "50%_Of\\ it" if number == 4 else f"n{number}"
            study = replace(STUDY, id=f"2026010{number}-000000-aaaa", kind=kind, title=title)
            store.add_study(study, facts="")
            store.add_trial(study.id, record(1, failure="broke"), ())
            store.add_trial(study.id, record(1, attempt=2), ())

        def ids(**asked: Any) -> list[str]:
            given: dict[str, Any] = {"words": "", "kind": "", "limit": 9, "offset": 0} | asked
            found = store.page(**given)
            return [one.study.id[7] for one in found.rows if isinstance(one, Listed)]

        assert ids() == ["5", "4", "3", "2", "1"]
        assert ids(limit=2, offset=1) == ["4", "3"]
        assert ids(kind="check") == ["3"]
        assert ids(words="N5") == ["5"]
        assert ids(words="50%_oF") == ["4"]
        assert ids(words="5_%") == []
        assert ids(order="oldest", limit=2) == ["1", "2"]
        assert ids(order="kind") == ["3", "5", "4", "2", "1"]
        found = store.page(words="", kind="", limit=2, offset=0)
        assert (found.total, found.kinds) == (5, ("check", "compare"))
        assert [(one.done, one.failed) for one in found.rows if isinstance(one, Listed)] == [(1, 1), (1, 1)]

    def test_studies_of_other_hosts_are_beside_those_of_this_one(self, store: Store) -> None:
        for host in ("web1", "web2"):
            with Store(store.place, host=host) as other:
                other.add_study(STUDY, facts=f'{{"on": "{host}"}}')
                other.add_trial(STUDY.id, record(1), CAPTURES)
                assert other.get(STUDY.id).facts == f'{{"on": "{host}"}}'
                assert [one.name for one in other.list(own=True) if isinstance(one, Listed)] == [f"{host}/{STUDY.id}"]
        assert store.hosts() == ("web1", "web2")
        assert store.get(STUDY.id).facts == '{"a": 1}'
        assert not store.get(STUDY.id).trials
        names = [one.name for one in store.list() if isinstance(one, Listed)]
        assert names == [f"web2/{STUDY.id}", f"web1/{STUDY.id}", STUDY.id]
        for order, expected in (("newest", names), ("oldest", names[::-1]), ("host", [names[2], names[1], names[0]])):
            page = store.page(words="", kind="", limit=9, offset=0, order=order)
            assert [one.name for one in page.rows if isinstance(one, Listed)] == expected, order
        page = store.page(words="WEB2", kind="", limit=9, offset=0)
        assert [one.name for one in page.rows if isinstance(one, Listed)] == [names[0]], "by its host"
        assert [one.name for one in store.list(own=True) if isinstance(one, Listed)] == [STUDY.id]
        with Store(store.place, reading=True) as again:
            assert again.find(f"web1/{STUDY.id[:8]}") == STUDY.id
            assert again.get(STUDY.id).facts == '{"on": "web1"}'
            assert again.captures(STUDY.id, 1) == CAPTURES
            with pytest.raises(UsageError, match="was measured on the host web1"):
                again.require_own(STUDY.id)
            assert again.find(STUDY.id) == STUDY.id
            again.require_own(STUDY.id)

    def test_a_study_is_read_without_distributions_and_the_rest_is_the_same(self, store: Store) -> None:
        store.add_trial(STUDY.id, record(1), ())
        store.add_trial(STUDY.id, record(2, failure="f"), ())
        whole, bare = store.get(STUDY.id), store.get(STUDY.id, distributions=False)
        first, second = whole.trials
        assert first.measurement is not None
        without = [replace(first, measurement=replace(first.measurement, histogram=None)), second]
        assert first.measurement == MEASURED
        assert list(bare.trials) == without

    def test_the_finished_studies_of_some_kinds_are_told_apart_by_what_they_ask(self, store: Store) -> None:
        assert store.finished(["compare"]) == ()
        assert not store.is_finished(STUDY.id)
        store.finish(STUDY.id)
        assert store.is_finished(STUDY.id)
        assert not store.is_finished("20260101-000000-ffff")
        (one,) = store.finished(["measure", "compare"], own=True)
        assert (one.host, one.id, one.created) == ("", STUDY.id, STUDY.created)
        assert study_from_json(store.text(one.id)) == STUDY
        assert store.finished(["tune"]) == ()
        later = replace(STUDY, id="later", created="2026-02-02T00:00:00+00:00", rounds=9)
        for study in (later, replace(later, id="other", seconds=9.0)):
            store.add_study(study, facts="")
            store.finish(study.id)
        for _ in range(2):  # the second time from what is kept
            asked = {found.id: found.question for found in store.finished(["compare"])}
            assert asked["later"] == asked[STUDY.id] == one.question
            assert asked["other"] != one.question

    def test_a_summary_is_of_its_method_and_of_all_attempts(self, store: Store) -> None:
        here = ("", STUDY.id)

        def kept(method: str = "1") -> str | None:
            return store.summaries([here], method=method).get(here)

        store.add_trial(STUDY.id, record(1), ())
        store.finish(STUDY.id)
        assert kept() is None
        store.put_summary(STUDY.id, "said", method="1", attempts=1)
        assert (kept(), kept("2")) == ("said", None)
        store.put_summary(STUDY.id, "now", method="2", attempts=1)
        assert (kept(), kept("2")) == (None, "now")
        store.add_trial(STUDY.id, record(2), ())
        assert kept("2") is None, "it was made of fewer attempts"
        store.put_summary(STUDY.id, "of both", method="2", attempts=2)
        store.replace_study(replace(STUDY, seconds=3.0))
        assert kept("2") is None, "it was made of another study"
        assert len(store.finished(["compare"])) == 1

    def test_a_host_of_no_name_that_virtune_gives_is_a_damaged_study(self, store: Store) -> None:
        self.sql(store, "update studies set id = '../' || id")
        assert [type(one) for one in store.list()] == [Damaged]
        with pytest.raises(StoreError, match="its host has no name"):
            store.get(store.find(STUDY.id))
