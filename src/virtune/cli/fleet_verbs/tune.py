# SPDX-License-Identifier: Apache-2.0
"""`virtune fleet tune`: one search over many hosts."""

from datetime import UTC, datetime
from itertools import chain
from typing import Any

import click

from virtune.cli.common.options import json_option, read_options
from virtune.cli.fleet_verbs import access_of, access_options, fleet_of, inventory_options, tell
from virtune.cli.fleet_verbs.run import ShownRun, begin_options, carrying_of, interrupted, kept
from virtune.model.errors import UsageError


@click.command(name="tune", context_settings={"ignore_unknown_options": True})
@click.argument("words", metavar="[OPTION OF tune]...", nargs=-1, type=click.UNPROCESSED)
@inventory_options
@begin_options
@access_options
@json_option
def tune(words: tuple[str, ...], *, again: str | None, as_json: bool, **asked: Any) -> int:
    """Search once over many hosts: together they find the best configuration sooner than one.

    Options that are not listed here are those of `virtune tune`: what to vary, the load, the goal. The configurations
    that all hosts can run race in turns on two thirds of the hosts, and the winner is compared with the baseline on
    the third that took no part, as on any further host. With fewer than five hosts all race, and what is said holds
    for these hosts. What a setting does on one host may differ from the others: hosts on which another configuration
    is better are named. Exit 1 when a host failed.

    \b
    virtune fleet tune -i hosts.txt --vary disk.aio --workload randread-4k
    virtune fleet tune -i hosts.txt --rig vhost-user --minimize latency.p99
    virtune fleet tune --again last
    """  # noqa: D301 - \b is click's mark for lines to keep
    from virtune.cli.tune import tune as verb
    from virtune.flows.fleet.ask import hosts_of
    from virtune.flows.fleet.run import RUNS, FleetPolicy, MetFleet
    from virtune.flows.fleet.tune import plan_search, search_fleet
    from virtune.model.fleet import TaskState
    from virtune.report.json.fleet import tune_document
    from virtune.report.pages.fleet import refused_lines, search_line, tuned_lines

    if again is not None and words:
        raise UsageError("--again goes on with a search, which has its options already", hint="leave one out")
    if again is None:
        context = verb.make_context("virtune fleet tune", list(words))  # the verb itself reads its options
        typed = click.core.ParameterSource.COMMANDLINE
        given = [name for name in context.params if context.get_parameter_source(name) is typed]
        hosts, access = hosts_of(fleet_of(asked)), access_of(asked)
        policy = FleetPolicy(at_once=asked["parallel"], shares=asked["shares"], seed=asked["seed"])
        options, now = read_options("tune", context.params), datetime.now(UTC)
        planned = plan_search(hosts, words, options, given, access, policy, now=now)
        if not asked["quiet"] and planned.run.search is not None:
            click.echo(search_line(planned.run, planned.run.search), err=True)
    else:
        planned = MetFleet(run=RUNS.find(again), refused={})
    run, carrying = planned.run, carrying_of(planned.run, asked)
    shown = ShownRun(run, quiet=asked["quiet"] or as_json)
    try:
        with kept(shown), shown.table():
            known, ended = search_fleet(run, carrying, say=shown.say, begins=shown.begins)
    except KeyboardInterrupt:
        raise interrupted(shown.run, "tune") from None
    lines = chain(tuned_lines(known, ended), refused_lines(planned.refused))
    failed = bool(planned.refused) or any(one.state is not TaskState.FINISHED for one in ended.values())
    return tell(tune_document(known, ended), lines, as_json=as_json, failed=failed)
