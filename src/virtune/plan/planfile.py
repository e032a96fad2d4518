# SPDX-License-Identifier: Apache-2.0
"""Plan files: a whole comparison written down in TOML, read strictly.

    title = "Which AIO engine for qcow2?"
    workload = ["randread-4k", "log-sync-16k"]     # as on the command line: profiles, fio's words, job files
    rounds = 40            # at most; a comparison stops when it knows
    budget = "5m"          # of running trials, at most
    seconds = 4            # or "500ms"
    span = "4G"
    baseline = "threads"
    metric = "latency.p99"
    pairs = "all"          # verdicts between all arms, not only against the baseline
    at_load = ["50%", "90%"]                       # of the baseline's saturation, or "5000iops"

    [set]                  # turns knobs of the base, which every arm starts from
    disk.format = "qcow2"

    [vary]                 # one arm per value, all combinations of several knobs
    disk.aio = ["threads", "native", "io_uring"]

    [[arm]]                # one arm with a name; `rig` may stand beside knobs
    name = "bare"
    rig = "metal"

A flag of the command line goes over the same key of the file, and has the same bounds. Job files are looked for where
the plan file lies. Whatever is not known here is refused by its name.
"""

import math
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NoReturn

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema

from virtune.fio.workloads import check_name
from virtune.model.errors import PlanError
from virtune.model.knob import Choice, Domain, Number, Size, Switch, Text
from virtune.model.knobs import KNOBS
from virtune.model.metric import BY_ID
from virtune.model.rig import read_rig, rig_words, rig_words_with_where
from virtune.model.spelling import did_you_mean, quoted
from virtune.model.stack import Stack
from virtune.model.study import (
    BUDGET_MAX,
    BUDGET_MIN,
    CONFIDENCE_BELOW,
    CONFIDENCE_MIN,
    MARGIN_MAX,
    MARGIN_MIN,
    RAMP_MAX,
    ROUNDS_MAX,
    SECONDS_MAX,
    SECONDS_MIN,
    SEED_MAX,
    Pairs,
)
from virtune.model.units import parse_bytes, parse_seconds
from virtune.plan.arms import ARMS_MAX, apply_settings
from virtune.plan.loads import read_loads

CHARACTERS_MAX = 64 * 1024
"""A plan is written by hand; what is longer is another file given by mistake."""

LINE_MAX = 4200
"""Room for the longest inline workload. Python's TOML reader takes a minute for one key of 50,000 dots."""

Words = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a plan file says; None and empty where it says nothing.

    `settings`, `vary` and the words of `arms` are written as on the command line: `disk.aio=native`.
    """

    title: str | None = None
    rig: str | None = None
    connect: str | None = None
    workload: Words = ()
    settings: Words = ()
    vary: Words = ()
    arms: tuple[tuple[str, Words], ...] = ()
    baseline: str | None = None
    rounds: int | None = None
    budget: float | None = None
    seconds: float | None = None
    ramp: float | None = None
    seed: int | None = None
    metric: str | None = None
    pairs: Pairs | None = None
    margin: float | None = None
    confidence: float | None = None
    at_load: Words = ()
    span: int | None = None


def read_plan(text: str) -> Plan:
    """Read a plan file's text; raises PlanError with the key's path, the reason and, where close, what was meant."""
    if len(text) > CHARACTERS_MAX:
        raise PlanError(f"a plan is at most {CHARACTERS_MAX // 1024} KiB of text", hint="is it the file you meant?")
    if any(len(line) > LINE_MAX for line in text.split("\n")):
        raise PlanError(f"a line of the plan is longer than {LINE_MAX} characters")
    try:
        parsed = tomllib.loads(text)
    except RecursionError:
        raise PlanError("the plan is nested too deeply") from None
    except ValueError as error:
        raise PlanError(
            f"the plan is not valid TOML: {error}"[:300], hint='text stands in quotes: rig = "metal"'
        ) from None
    try:
        file = _File.model_validate(parsed)
    except ValidationError as error:
        _explain(error)
    arms = tuple((arm.name, tuple(_settings(arm.model_extra or {}, f"arm {arm.name}"))) for arm in file.arm)
    names = [name for name, _ in arms]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise PlanError(f"arm: two are named {twice}", hint="give each its own name")
    return Plan(
        **{key: getattr(file, key) for key in _File.model_fields if key not in ("set", "vary", "arm")},
        settings=tuple(_settings(file.set, "set")),
        vary=tuple(_varied(file.vary)),
        arms=arms,
    )


def plan_schema() -> dict[str, Any]:
    """Return the JSON schema of a plan file (of the values that its TOML stands for)."""
    schema = _File.model_json_schema()
    schema.pop("$defs", None)
    one = {"rig": _RIGS, **_knob_schemas(lambda value: value)}
    many = {"rig": _list_of(_RIGS), **_knob_schemas(_list_of)}
    own = {"name": {"type": "string", "description": "the name of the arm"}}
    schema["properties"]["set"] = _table(one, "knobs of the base, which every arm starts from")
    schema["properties"]["vary"] = _table(many, "one arm per value, all combinations of several knobs")
    arm = {**_table({**own, **one}, "a stack of its own"), "required": ["name"]}
    schema["properties"]["arm"] = {"type": "array", "maxItems": ARMS_MAX, "items": arm}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "A plan of virtune"}


def _seconds(low: float, high: float, value: object) -> float:
    seconds = value if not isinstance(value, str) else parse_seconds(value)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise ValueError('write a number of seconds or a time such as "500ms"')  # noqa: TRY004 - pydantic reads it
    if not math.isfinite(seconds) or not low <= seconds <= high:
        raise ValueError(f"is outside {low:g} s..{high:g} s")
    return float(seconds)


def _size(value: object) -> int:
    size = parse_bytes(value) if isinstance(value, str) else value
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= 2**60:
        raise ValueError('write a size such as "4G" or a number of bytes')
    return size


def _words(value: object) -> tuple[str, ...]:
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise ValueError('write a workload in quotes, or a list: ["randread-4k", "randwrite-4k"]')
    return tuple(words)


def _loads(value: object) -> tuple[str, ...]:
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise ValueError('write loads in quotes: ["50%", "70%", "5000iops"]')
    try:
        return read_loads(tuple(words))
    except PlanError as error:
        raise ValueError(f"{error.message}: {error.hint}") from None


def _one_of(known: tuple[str, ...], value: object) -> str:
    if not isinstance(value, str) or value not in known:
        guess = did_you_mean(value, known) if isinstance(value, str) else None
        raise ValueError(f"{quoted(str(value))} is not known; {guess or 'one of ' + ', '.join(known)}")
    return value


def _rig(value: object) -> str:
    known = isinstance(value, str) and read_rig(value) is not None
    return str(value) if known else _one_of(rig_words(), value)


def _arm_name(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("write a name in quotes")  # noqa: TRY004 - pydantic reads it
    try:
        return check_name(value, "an arm")
    except PlanError as error:
        raise ValueError(f"{error.message}: {error.hint}") from None


_TIME = WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string", "pattern": "^[0-9.]+ *(us|ms|s|m|h)?$"}]})
_SIZE = WithJsonSchema(
    {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^[0-9]+[kmgtpKMGTP]?(i?[bB])?$"}]}
)
_WORKLOAD = WithJsonSchema(
    {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
)
_METRIC = WithJsonSchema({"enum": list(BY_ID)})
_RIGS: dict[str, Any] = {
    "anyOf": [
        {"enum": list(rig_words())},
        *({"type": "string", "pattern": f"^{word.partition(':')[0]}:."} for word in rig_words_with_where()),
    ]
}
_RIG = WithJsonSchema(_RIGS)


class _Arm(BaseModel):
    """An arm: its name, and its knobs as what stands beside it."""

    model_config = ConfigDict(extra="allow", strict=True)

    name: Annotated[str, BeforeValidator(_arm_name)]


class _File(BaseModel):
    """A comparison of stacks, written down."""

    model_config = ConfigDict(extra="forbid", strict=True)

    title: Annotated[str | None, Field(max_length=200, description="what is to be found out")] = None
    rig: Annotated[str | None, BeforeValidator(_rig), _RIG, Field(description="what brings stacks up")] = None
    connect: Annotated[
        str | None, Field(max_length=1000, description="the libvirt that has the domain of `rig = libvirt:DOMAIN`")
    ] = None
    workload: Annotated[
        Words, BeforeValidator(_words), _WORKLOAD, Field(description="profiles, fio's words, job files")
    ] = ()
    baseline: Annotated[
        str | None, Field(description="the arm the others are held against; the first one if unsaid")
    ] = None
    rounds: Annotated[int | None, Field(ge=1, le=ROUNDS_MAX, description="how often every arm is tried")] = None
    budget: Annotated[
        float | None,
        BeforeValidator(partial(_seconds, BUDGET_MIN, BUDGET_MAX)),
        _TIME,
        Field(description="time of all trials"),
    ] = None
    seconds: Annotated[
        float | None,
        BeforeValidator(partial(_seconds, SECONDS_MIN, SECONDS_MAX)),
        _TIME,
        Field(description="measured time"),
    ] = None
    ramp: Annotated[
        float | None, BeforeValidator(partial(_seconds, 0.0, RAMP_MAX)), _TIME, Field(description="time before that")
    ] = None
    seed: Annotated[int | None, Field(ge=0, le=SEED_MAX, description="of the order of trials and of offsets")] = None
    pairs: Pairs | None = None
    metric: Annotated[
        str | None, BeforeValidator(partial(_one_of, tuple(BY_ID))), _METRIC, Field(description="compared")
    ] = None
    margin: Annotated[
        float | None,
        Field(ge=MARGIN_MIN, le=MARGIN_MAX, description="the smallest relative difference worth knowing"),
    ] = None
    confidence: Annotated[
        float | None, Field(ge=CONFIDENCE_MIN, lt=CONFIDENCE_BELOW, description="of all verdicts together")
    ] = None
    at_load: Annotated[
        Words, BeforeValidator(_loads), _WORKLOAD, Field(description="offered loads at which latency is compared")
    ] = ()
    span: Annotated[int | None, BeforeValidator(_size), _SIZE, Field(description="how much of a disk is touched")] = (
        None
    )
    set: dict[str, Any] = {}
    vary: dict[str, Any] = {}
    arm: Annotated[list[_Arm], Field(max_length=ARMS_MAX)] = []


def _explain(error: ValidationError) -> NoReturn:
    """Turn pydantic's first complaint into one sentence that names the key."""
    first = error.errors(include_url=False, include_input=False)[0]
    path = ".".join(str(step + 1) if isinstance(step, int) else quoted(step)[1:-1] for step in first["loc"])
    if first["type"] == "extra_forbidden":
        hint = did_you_mean(str(first["loc"][-1]), _File.model_fields) or f"keys: {', '.join(_File.model_fields)}"
        raise PlanError(f"unknown key {path} in the plan", hint=hint) from None
    if first["type"] == "missing":
        raise PlanError(f"{path} is missing", hint='write name = "..." into every [[arm]]') from None
    reason = first["msg"].removeprefix("Value error, ")
    raise PlanError(f"{path}: {reason[:1].lower()}{reason[1:]}") from None


def _flat(table: Mapping[str, Any], path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield (knob, value): `disk.aio = ...`, `"disk.aio" = ...` and `[set.disk]` say the same."""
    for key, value in table.items():
        name = f"{path}.{key}" if path else key
        if isinstance(value, dict) and depth < 3:
            yield from _flat(value, name, depth + 1)
        else:
            yield name, value


def _text(value: object, where: str) -> str:
    match value:
        case bool():
            return "on" if value else "off"
        case int() if abs(value) < 10**18:
            return str(value)
        case str() if value.strip():
            return value.strip()
        case _:
            raise PlanError(f"{where}: write a text in quotes, a whole number, true or false")


def _settings(table: Mapping[str, Any], where: str) -> Iterator[str]:
    """Yield `knob=value` for a table of settings, each checked so that an error names its place."""
    words = [_setting(name, value, where) for name, value in _flat(table)]
    _in_place(where, lambda: apply_settings(Stack(), words))
    yield from words


def _setting(name: str, value: object, where: str) -> str:
    word = f"{name}={_text(value, f'{where}.{quoted(name)[1:-1]}')}"
    _in_place(where, lambda: apply_settings(Stack(), [word]))
    return word


def _varied(table: Mapping[str, Any]) -> Iterator[str]:
    for name, values in _flat(table):
        if not isinstance(values, list) or not values:
            raise PlanError(
                f"vary.{quoted(name)[1:-1]}: write a list of values", hint='disk.aio = ["threads", "native"]'
            )
        if len(values) > ARMS_MAX:
            raise PlanError(f"vary.{quoted(name)[1:-1]}: more than {ARMS_MAX} values")
        words = [_setting(name, value, "vary").partition("=")[2] for value in values]
        if any("," in word for word in words):
            raise PlanError(f"vary.{name}: a value has a comma", hint="write such stacks as [[arm]]")
        yield f"{name}={','.join(words)}"


def _in_place(where: str, check: Callable[[], object]) -> None:
    try:
        check()
    except PlanError as error:
        raise PlanError(f"{where}: {error.message}", hint=error.hint) from None


def _knob_schemas(of: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """Return the schemas of the knobs that can be turned, nested as TOML nests dotted keys."""
    found: dict[str, Any] = {}
    for knob in (knob for knob in KNOBS if knob.place):
        room, _, name = knob.id.partition(".")
        table = found.setdefault(room, _table({}, ""))
        table["properties"][name] = {**of(_domain_schema(knob.domain)), "description": knob.what}
    return found


def _domain_schema(domain: Domain) -> dict[str, Any]:
    match domain:
        case Choice(values=values):
            return {"enum": list(values)}
        case Number(low=low, high=high):
            return {"type": "integer", "minimum": low, "maximum": high}
        case Size():
            return {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^[0-9]+[kmgtpKMGTP]?(i?[bB])?$"}]}
        case Switch():
            return {"anyOf": [{"type": "boolean"}, {"enum": ["on", "off"]}]}
        case Text(shape=shape):
            return {"type": "string", "description": shape}


def _list_of(value: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": value, "minItems": 1}


def _table(properties: dict[str, Any], description: str) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**found, "description": description} if description else found
