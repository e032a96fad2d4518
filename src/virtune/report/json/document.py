# SPDX-License-Identifier: Apache-2.0
"""The types of which documents are made, and how their parts are made from the model.

A document is a TypedDict. `Annotated` gives each key its words and, as a mapping, its limits in JSON Schema's terms;
the published schema is generated from it (`tools/schemas/typed.py`). `part` takes each key from the model's attribute
of the same name, so that only the others are written out; `tests/tidy/test_typed_documents.py` proves that there is
such an attribute, of a type that the key can hold.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from enum import Enum, auto
from functools import cache, partial, reduce
from operator import attrgetter, or_
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, cast, get_args, get_origin, is_typeddict

from virtune import __version__
from virtune.model.text import A_MOMENT, AT_LEAST_ONE, LEFT_OUT, NOT_NEGATIVE, SHARE, At, Name

__all__ = ["AT_LEAST_ONE", "NOT_NEGATIVE", "SHARE", "At", "Name"]
"""What the model has of these, since records of its own are parts of documents, too."""

_Part = TypeVar("_Part")
_Maker = TypeVar("_Maker", bound=Callable[..., Any])

IDENTITY = "What this document is, and the version of its schema."

ProgramVersion = Annotated[str, "The version of virtune that wrote this document."]

Moment = Annotated[str, A_MOMENT]
"""An instant in UTC, as `datetime.isoformat` writes it."""

Sentence = Annotated[str, "A sentence."]

CODE = "The same as a code, which stays the same whatever the words are."

POSITIVE = {"exclusiveMinimum": 0}
NOT_EMPTY = {"minItems": 1}


OR_NULL = At(or_null=True)


class Keys(Enum):
    """Of what the keys of a mapping are names; the schema lists them."""

    METRICS = auto()
    """Of metrics; one that is missing was not measured."""

    UNITS = auto()
    """Of metrics, all of them; the values are their units."""

    CAUSES = auto()
    """Of the remarks that make a trial invalid."""

    GATES = auto()
    """Of gates; one that is missing was not read."""


MAKERS: dict[Any, Callable[[Any], Any]] = {}
"""What makes the parts that have more keys than their sources have attributes, by the part's type."""


def maker(make: _Maker) -> _Maker:
    """Let `part` make all parts of the type that a function returns by that function."""
    MAKERS[make.__annotations__["return"]] = make
    return make


def part(kind: type[_Part], /, *sources: object, **given: object) -> _Part:
    """Return a part of a document: each key is given, or the attribute of that name of the one source that has it.

    Values become plain as the types of their keys say: what has a part of its own becomes that part, tuples become
    lists, pairs mappings; what is plain already stays. `schema`, `virtune` and what can only be one word need no
    source. Raises TypeError for a key that no source has or several have, and for a given one that the part has not.
    """
    plan = plan_of(cast("Any", kind), tuple([type(source) for source in sources]), tuple(given))
    made = plan.fixed.copy()
    for index, (names, _, read) in enumerate(plan.reads):
        for name, value in zip(names, read(sources[index]), strict=True):  # half the time of dict.update
            made[name] = value
    if given:
        made.update(given)
    for name, plain in plan.plains:
        made[name] = plain(made[name])
    return made  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Plan:
    """How a part is made: the keys in their order with what never changes, what is read of each source
    (which keys, where), and how the values of some keys become plain.
    """

    fixed: dict[str, Any]
    reads: tuple[tuple[tuple[str, ...], tuple[str, ...], Callable[[Any], tuple[Any, ...]]], ...]
    plains: tuple[tuple[str, Callable[[Any], Any]], ...]


@cache
def plan_of(kind: Any, sources: tuple[type, ...], given: tuple[str, ...]) -> Plan:
    """Return how a part is made of objects of these classes, some keys being given; raises TypeError as `part`."""
    keys = {name: _key(name, one) for name, one in types_of(kind).items()}
    if strangers := [name for name in given if name not in keys]:
        raise TypeError(f"{kind.__name__} has no {', '.join(strangers)}")
    wanted = [name for name, key in keys.items() if name not in given and key.fixed is None]
    having = {name: [index for index, one in enumerate(sources) if _has(one, keys[name].path)] for name in wanted}
    if unclear := [name for name, indices in having.items() if len(indices) != 1]:
        raise TypeError(f"{kind.__name__}: not in exactly one of its sources: {', '.join(unclear)}")
    own = [tuple(name for name in wanted if having[name] == [index]) for index in range(len(sources))]
    paths = [tuple(keys[name].path for name in names) for names in own]
    return Plan(
        fixed={name: key.fixed for name, key in keys.items()},
        reads=tuple((names, path, _reader(path)) for names, path in zip(own, paths, strict=True)),
        plains=tuple((name, key.plain) for name, key in keys.items() if key.plain and key.fixed is None),
    )


def types_of(kind: Any) -> dict[str, Any]:
    """Return the keys of a part with their types: of a record its fields, but those that no document has, and with
    the key of the document where a field has another name.
    """
    if not is_dataclass(kind):
        return dict(kind.__annotations__)
    notes = {one.name: getattr(one.type, "__metadata__", ()) for one in fields(kind)}
    named = {name: [note.key for note in mine if isinstance(note, At) and note.key] for name, mine in notes.items()}
    return {
        next(iter(named[one.name]), one.name): one.type for one in fields(kind) if LEFT_OUT not in notes[one.name]
    }


def _has(source: type, path: str) -> bool:
    name = path.partition(".")[0].rstrip("?")
    return hasattr(source, name) or name in getattr(source, "__dataclass_fields__", ())


def _reader(paths: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if len(paths) > 1 and not any("?" in path for path in paths):
        return attrgetter(*paths)
    return lambda source: tuple(reduce(_of, path.split("."), source) for path in paths)


def _of(source: Any, name: str) -> Any:
    return None if source is None else getattr(source, name.rstrip("?"))


class _Key(NamedTuple):
    """Where a key's value is in its source, what it always is (else None), and how it becomes plain."""

    path: str
    fixed: Any
    plain: Callable[[Any], Any] | None


def _key(name: str, kind: Any) -> _Key:
    inner, *notes = get_args(kind) if get_origin(kind) is Annotated else (kind,)
    at = next((note for note in notes if isinstance(note, At)), At())
    words = get_args(inner) if get_origin(inner) is Literal else ()
    constants = [note["const"] for note in notes if isinstance(note, Mapping) and "const" in note]
    constants += [words[0]] if len(words) == 1 else [__version__] if kind == ProgramVersion else []
    return _Key(
        at.path or name, next(iter(constants), None), (lambda value: value or None) if at.or_null else _plain(kind)
    )


def _plain(kind: Any) -> Callable[[Any], Any] | None:
    """How a value becomes one of a key's type; None where it is one already."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        shapes = (one for one in arguments[1:] if isinstance(one, (type, UnionType, GenericAlias)))
        return _plain(next(shapes, arguments[0]))
    if kind is datetime:
        return datetime.isoformat
    if is_typeddict(kind) or is_dataclass(kind):
        return _unless_plain(MAKERS.get(kind) or partial(part, kind))
    if origin in (Union, UnionType):
        return _or_null([one for one in arguments if one is not NoneType])
    if origin in (list, tuple):
        each = _plain(arguments[0])
        return list if each is None else lambda values: [each(one) for one in values]
    if origin is Mapping:
        inner = _plain(arguments[1])
        return dict if inner is None else lambda pairs: {name: inner(one) for name, one in dict(pairs).items()}
    return None


def _or_null(kinds: list[Any]) -> Callable[[Any], Any] | None:
    plain: Callable[[Any], Any] | None = None
    if len(kinds) == 1:
        plain = _plain(kinds[0])
    elif all(map(is_dataclass, kinds)):
        plain = _unless_plain(lambda value: part(type(value), value))
    elif all(map(is_typeddict, kinds)):
        plain = _unless_plain(MAKERS[reduce(or_, kinds)])
    return None if plain is None else lambda value: None if value is None else plain(value)


def _unless_plain(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: value if type(value) is dict else make(value)
