# SPDX-License-Identifier: Apache-2.0
"""Plan files: a whole comparison written down in TOML, with strict checks.

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
the plan file lies. Unknown keys are refused by name.
"""

import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, NoReturn

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema, create_model

from virtune.fio.workloads import check_name
from virtune.model import study_options as options
from virtune.model.errors import PlanError
from virtune.model.knob import Choice, Domain, Number, Size, Switch, Text
from virtune.model.knobs import KNOBS
from virtune.model.metric import BY_ID
from virtune.model.rig import read_rig, rig_words, rig_words_with_where
from virtune.model.stack import Stack
from virtune.model.text import did_you_mean, format_bytes, parse_bytes, parse_seconds, quoted
from virtune.plan.arms import ARMS_MAX, apply_settings
from virtune.plan.loads import read_loads

CHARACTERS_MAX = 64 * 1024
"""A plan is written by hand; a longer file was given by mistake."""

LINE_MAX = 4200
"""Room for the longest inline workload. Python's TOML reader takes a minute for one key of 50,000 dots."""


def read_plan(text: str) -> options.StudyOptions:
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
    return plan_of(parsed)


def plan_of(parsed: Mapping[str, Any]) -> options.StudyOptions:
    """Return the options that a plan's values ask for; raises PlanError with the key and what is wrong with it."""
    try:
        file = _File.model_validate(parsed)
    except ValidationError as error:
        _explain(error)
    said: dict[str, Any] = {name: getattr(file, row.plan) for name, row in options.OPTIONS.items() if row.plan}
    arms = tuple((arm.name, tuple(_settings(arm.model_extra or {}, f"arm {arm.name}"))) for arm in said["arms"])
    names = [name for name, _ in arms]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise PlanError(f"arm: two are named {twice}", hint="give each its own name")
    settings, vary = tuple(_settings(said["settings"], "set")), tuple(_varied(said["vary"]))
    return options.StudyOptions(**said | {"arms": arms, "settings": settings, "vary": vary})


def plan_schema() -> dict[str, Any]:
    """Return the JSON schema of a plan file (of the values that its TOML stands for)."""
    schema = _File.model_json_schema()
    schema.pop("$defs", None)
    one = {"rig": _RIGS, **_knob_schemas(lambda value: value)}
    many = {"rig": _list_of(_RIGS), **_knob_schemas(_list_of)}
    own = {"name": {"type": "string", "description": "The name of the arm."}}
    schema["properties"]["set"] = _table(one, plan_words("settings"))
    schema["properties"]["vary"] = _table(many, plan_words("vary"))
    arm = {**_table({**own, **one}, "A stack of its own."), "required": ["name"]}
    many_arms = {"type": "array", "maxItems": ARMS_MAX, "items": arm, "description": plan_words("arms")}
    schema["properties"]["arm"] = many_arms
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "A plan of virtune"}


def plan_words(name: str) -> str:
    """Describe an option of a plan file: its meaning, the values allowed, its default."""
    row = options.OPTIONS[name]
    means = [row.plan_help or str(options.for_verb(row.help, "compare"))]
    if row.takes is options.Takes.TIME:
        between = (
            f"from {options.value_text(row.takes, row.low or 0)} to {options.value_text(row.takes, row.high or 0)}"
        )
        means.append(f"A number of seconds, or a text with its unit (500ms, 2m), {between}.")
    if row.takes is options.Takes.SIZE:
        means.append(f"A number of bytes, or a text (4G; powers of 1024), at least {format_bytes(row.low or 0)}.")
    if default := options.default_words(row, "compare"):
        means.append(f"Default: {default}.")
    return _FLAG.sub(lambda found: f"`{found[1].replace('-', '_')}`", " ".join(means))


_FLAG = re.compile(r"--([a-z][a-z-]*)")
"""A flag in the help of the command line, written as a key in plan files."""


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


def _words(
    value: object, says: str = 'a workload in quotes, or a list: ["randread-4k", "randwrite-4k"]'
) -> options.Words:
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise ValueError(f"write {says}")
    return tuple(words)


def _loads(value: object) -> tuple[str, ...]:
    words = _words(value, 'loads in quotes: ["50%", "70%", "5000iops"]')
    try:
        return read_loads(words)
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
_BYTES: dict[str, Any] = {
    "anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^[0-9]+[kmgtpKMGTP]?(i?[bB])?$"}]
}
_SIZE = WithJsonSchema(_BYTES)
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
    """An arm: its name, and its settings as the other keys."""

    model_config = ConfigDict(extra="allow", strict=True)

    name: Annotated[str, BeforeValidator(_arm_name)]


def _field(name: str, row: options.OptionRow) -> tuple[Any, Any]:
    """Return the type and the default of a key, as pydantic takes them."""
    others = () if row.many else False if row.takes is options.Takes.SWITCH else None
    nothing: Any = {} if row.takes is options.Takes.SETTINGS else [] if row.takes is options.Takes.ARMS else others
    return Annotated[_TYPES[row.takes](row), Field(description=plan_words(name))], nothing


_TYPES: Mapping[options.Takes, Callable[[options.OptionRow], Any]] = {
    options.Takes.SETTINGS: lambda _: dict[str, Any],
    options.Takes.ARMS: lambda _: Annotated[list[_Arm], Field(max_length=ARMS_MAX)],
    options.Takes.WORKLOADS: lambda _: Annotated[options.Words, BeforeValidator(_words), _WORKLOAD],
    options.Takes.LOADS: lambda _: Annotated[options.Words, BeforeValidator(_loads), _WORKLOAD],
    options.Takes.TIME: lambda row: Annotated[
        float | None, BeforeValidator(partial(_seconds, row.low or 0.0, row.high or math.inf)), _TIME
    ],
    options.Takes.SIZE: lambda _: Annotated[int | None, BeforeValidator(_size), _SIZE],
    options.Takes.RIG: lambda _: Annotated[str | None, BeforeValidator(_rig), _RIG],
    options.Takes.METRIC: lambda _: Annotated[str | None, BeforeValidator(partial(_one_of, tuple(BY_ID))), _METRIC],
    options.Takes.CHOICE: lambda row: Literal[options.for_verb(row.choices, "compare")] | None,
    options.Takes.WHOLE: lambda row: Annotated[int | None, Field(ge=row.low, le=row.high)],
    options.Takes.SHARE: lambda row: Annotated[
        float | None, Field(ge=row.low, lt=row.high) if row.below else Field(ge=row.low, le=row.high)
    ],
    options.Takes.SWITCH: lambda _: bool,
    options.Takes.TEXT: lambda row: Annotated[
        str | None, Field(max_length=None if row.high is None else int(row.high))
    ],
}
"""How pydantic reads the value of a key; no key is a path yet."""

_KEYS: dict[str, Any] = {row.plan: _field(name, row) for name, row in options.OPTIONS.items() if row.plan}
_File: type[BaseModel] = create_model(
    "_File", __config__=ConfigDict(extra="forbid", strict=True), __doc__="A comparison of stacks.", **_KEYS
)
"""A comparison of stacks: its keys are those of the table of options."""


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
    _require_settings(where, words)
    yield from words


def _setting(name: str, value: object, where: str) -> str:
    word = f"{name}={_text(value, f'{where}.{quoted(name)[1:-1]}')}"
    _require_settings(where, [word])
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


def _require_settings(where: str, words: Sequence[str]) -> None:
    try:
        apply_settings(Stack(), words)
    except PlanError as error:
        raise PlanError(f"{where}: {error.message}", hint=error.hint) from None


def _knob_schemas(of: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """Return the schemas of the knobs that can be set, nested like dotted keys in TOML."""
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
            return _BYTES
        case Switch():
            return {"anyOf": [{"type": "boolean"}, {"enum": ["on", "off"]}]}
        case Text(shape=shape):
            return {"type": "string", "description": shape}


def _list_of(value: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": value, "minItems": 1}


def _table(properties: dict[str, Any], description: str) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**found, "description": description} if description else found
