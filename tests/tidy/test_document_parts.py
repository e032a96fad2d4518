# SPDX-License-Identifier: Apache-2.0
"""Every key of every part of a document is given by its maker, or is an attribute of its source with such values.

Read from the source, so that a field of the model that is renamed is found without a run of the verb that shows it.
"""

import ast
import importlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from types import FunctionType, GenericAlias, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NewType,
    TypedDict,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import pytest

import virtune.report.json
from virtune.model.result import ArmKnee, LoadEstimate
from virtune.report.json.document import MAKERS, part, plan_of

NAMES = [path.stem for path in sorted(Path(virtune.report.json.__path__[0]).glob("*.py")) if path.stem != "__init__"]
MODULES = [importlib.import_module(f"virtune.report.json.{name}") for name in NAMES]
UNMADE = {"_Pair"}
"""What only others are made of."""

Types = dict[str, Any]


def bare(kind: Any) -> Any:
    """A type without notes; of a plain dataclass, which a note names, that one."""
    if isinstance(kind, NewType):
        return kind.__supertype__
    if get_origin(kind) is not Annotated:
        return kind
    inner, *notes = get_args(kind)
    return next((one for one in notes if isinstance(one, (type, UnionType, GenericAlias))), bare(inner))


def members(kind: Any) -> list[Any]:
    """The types that a type is one of."""
    kind = bare(kind)
    return [bare(one) for one in get_args(kind)] if get_origin(kind) in (Union, UnionType) else [kind]


def attribute(kind: Any, name: str) -> Any:
    """The type of an attribute of what may be null, and of what a method returns."""
    (owner,) = [one for one in members(kind) if one is not NoneType]
    given = dict(zip(getattr(get_origin(owner), "__parameters__", ()), get_args(owner), strict=False))
    owner = get_origin(owner) if is_dataclass(get_origin(owner)) else owner  # what is generic
    if not isinstance(owner, type):
        return Any
    found = inspect.getattr_static(owner, name, None)
    if isinstance(found, (property, FunctionType)):
        return get_type_hints(getattr(found, "fget", found), include_extras=True)["return"]
    found = get_type_hints(owner, include_extras=True)[name]
    return given.get(found, found)


def type_of(expression: ast.expr, known: Types) -> Any:
    """The type of a name, of its attributes, of what its methods return or of what is chosen; else Any."""
    match expression:
        case ast.Name(id=name):
            return known.get(name, Any)
        case ast.Attribute(value=inside, attr=name):
            owner = type_of(inside, known)
            return Any if owner is Any else attribute(owner, name)
        case ast.Call(func=ast.Attribute(value=inside, attr="values")) if (
            get_origin(type_of(inside, known)) is Mapping
        ):
            return tuple[get_args(type_of(inside, known))[1], ...]  # type: ignore[misc]
        case ast.Call(func=ast.Name(id=name)):
            return known.get(f"{name}()", Any)
        case ast.Call(func=ast.Attribute() as method):
            return type_of(method, known)
        case ast.ListComp(elt=one, generators=clauses):
            return tuple[type_of(one, within(clauses, known)), ...]  # type: ignore[misc]
        case ast.DictComp(value=one, generators=clauses):
            return Mapping[str, type_of(one, within(clauses, known))]  # type: ignore[misc]
    return Any


def within(clauses: list[ast.comprehension], known: Types) -> Types:
    """The types of the names in a comprehension; `isinstance` says which of several types one has."""
    for clause in clauses:
        every = type_of(clause.iter, known)
        each = get_args(every)[0] if get_origin(every) in (list, tuple, Sequence) else Any
        for test in clause.ifs:
            if isinstance(test, ast.Call) and ast.unparse(test.func) == "isinstance":
                (each,) = [one for one in members(each) if one.__name__ == ast.unparse(test.args[1])]
        known = known | {ast.unparse(clause.target): each}
    return known


def holds(key: Any, value: Any) -> bool:
    """Whether a key of a type can take what an attribute of a type has, once it is plain."""
    if Any in (bare(key), bare(value)):
        return True
    takes = members(key)
    parts = [one for one in takes if is_typeddict(one)]
    if len(parts) > 1:
        takes = [reduce(or_, parts), *(one for one in takes if one not in parts)]
    return all(any(holds_one(one, each) for one in takes) for each in members(value))


def holds_one(key: Any, value: Any) -> bool:
    if key == value:  # it is plain already
        return True
    origin, arguments = get_origin(key), get_args(key)
    of, inner = get_origin(value), get_args(value)
    if (is_typeddict(key) or isinstance(key, UnionType)) and key in MAKERS:
        (made_of, *_) = get_type_hints(MAKERS[key]).values()
        return set(members(value)) <= set(members(made_of))
    if is_typeddict(key):
        return is_dataclass(of or value) and fits(key, (value,), {})
    if origin is list:
        return of in (tuple, list, Sequence) and holds(arguments[0], inner[0])
    if origin is tuple:
        return of is tuple and holds(arguments[0], inner[0])
    if origin is Mapping:
        pair = get_args(inner[0]) if of is tuple else inner
        return len(pair) == 2 and holds(arguments[1], pair[1])
    if origin is Literal:
        return of is Literal and set(inner) <= set(arguments)
    if of is Literal:
        return all(isinstance(one, key) for one in inner)
    return (key is float and value is int) or (key is str and issubclass(value, str))


SEEN: set[str] = set()
"""The parts that were looked at."""


def fits(kind: Any, sources: tuple[Any, ...], given: Types) -> bool:
    """Whether a part can be made so; raises TypeError or AssertionError that say which key cannot."""
    SEEN.add(kind.__name__)
    found = plan_of(kind, sources, tuple(given))
    keys = get_type_hints(kind, include_extras=True)
    values = given | {
        name: reduce(attribute, path.split("."), source)
        for source, (names, paths, _) in zip(sources, found.reads, strict=True)
        for name, path in zip(names, paths, strict=True)
    }
    for name, value in values.items():
        SEEN.update(one.__name__ for one in members(value) if is_typeddict(one))
        has = [one for one in members(value) if one is not NoneType or name not in given]  # a maker looks first
        assert holds(keys[name], reduce(or_, has)), f"{kind.__name__}.{name} cannot be {value}"
    return True


def known_in(function: FunctionType, tree: ast.AST) -> Types:
    """The types of a function's parameters, and of names for what they have."""
    tables = {name: function.__globals__.get(name) for name in function.__code__.co_names}
    known: Types = {
        name: Mapping[str, type(next(iter(one.values())))]  # type: ignore[misc]
        for name, one in tables.items()
        if isinstance(one, dict)
    }
    for name, one in tables.items():
        if isinstance(one, FunctionType) and one is not part:
            known[f"{name}()"] = get_type_hints(one).get("return", Any)
    known |= {name: kind for name, kind in get_type_hints(function, include_extras=True).items() if name != "return"}
    for one in ast.walk(tree):
        if isinstance(one, ast.Assign):
            names, values = one.targets[0], one.value
            several = isinstance(names, ast.Tuple) and isinstance(values, ast.Tuple)
            pairs = zip(names.elts, values.elts, strict=True) if several else [(names, values)]  # type: ignore[attr-defined]
            known |= {name.id: type_of(value, known) for name, value in pairs if isinstance(name, ast.Name)}
    return known


def kinds_of(expression: ast.expr, function: FunctionType) -> Iterator[tuple[Any, type | None]]:
    """The parts that a call makes: one, or of a table one for each class of source."""
    if isinstance(expression, ast.Subscript):
        table: Mapping[type, Any] = function.__globals__[ast.unparse(expression.value)]
        yield from ((kind, source) for source, kind in table.items())
    else:
        yield function.__globals__[ast.unparse(expression)], None


def made_by(function: FunctionType) -> Iterator[tuple[Any, tuple[Any, ...], Types]]:
    """Each part that a function makes, with the types of its sources and of what is given beside them."""
    tree = ast.parse(inspect.getsource(function))
    known = known_in(function, tree)
    for one in ast.walk(tree):
        if isinstance(one, ast.Call) and ast.unparse(one.func) == "part":
            kind, *sources = one.args
            given = {word.arg: type_of(word.value, known) for word in one.keywords if word.arg}
            for made, source in kinds_of(kind, function):
                yield made, (source,) if source else tuple(type_of(each, known) for each in sources), given


FUNCTIONS = [
    function
    for module in MODULES
    for function in vars(module).values()
    if isinstance(function, FunctionType) and function.__module__ == module.__name__ != part.__module__
]


def test_every_key_of_every_part_has_a_source_that_fits() -> None:
    for function in FUNCTIONS:
        for kind, sources, given in made_by(function):
            assert Any not in sources, (
                f"{function.__name__}: the type of a source of {kind.__name__} is not to be seen"
            )
            fits(kind, tuple(members(one)[0] for one in sources), given)
    own = [(module, one) for module in MODULES for one in vars(module).values() if is_typeddict(one)]
    parts = [one for module, one in own if one.__module__ == module.__name__]
    assert len(parts) > 95
    assert {one.__name__ for one in parts} - SEEN == UNMADE


class EstimatePart(TypedDict):
    """A load with its interval."""

    iops: float
    low: float | None
    high: float | None


class KneePart(TypedDict):
    """A load of an arm."""

    arm: str
    workload: str
    knee: EstimatePart


@dataclass(frozen=True)
class Renamed:
    """A load whose field is no longer called as the key is."""

    rate: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Retyped:
    """A load whose field no longer holds what the key takes."""

    iops: str
    low: float | None
    high: float | None


def test_a_field_that_is_renamed_or_of_another_type_is_found() -> None:
    assert part(EstimatePart, LoadEstimate(iops=1.0, low=None, high=2.0)) == {"iops": 1.0, "low": None, "high": 2.0}
    with pytest.raises(TypeError, match="EstimatePart: not in exactly one of its sources: iops"):
        fits(EstimatePart, (Renamed,), {})
    with pytest.raises(TypeError, match="EstimatePart has no rate"):
        fits(EstimatePart, (Renamed,), {"iops": float, "rate": float})
    with pytest.raises(TypeError, match="low, high"):
        part(EstimatePart, Renamed(1.0, None, None), Retyped("1", None, None))
    with pytest.raises(AssertionError, match=r"EstimatePart.iops cannot be .*str"):
        fits(EstimatePart, (Retyped,), {})
    with pytest.raises(AssertionError, match=r"EstimatePart.iops cannot be .*str"):
        fits(KneePart, (ArmKnee,), {"knee": Retyped})
