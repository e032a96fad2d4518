# SPDX-License-Identifier: Apache-2.0
"""The schema of a document, from the TypedDict that the code which makes the document is checked against."""

from collections.abc import Callable, Mapping
from types import GenericAlias, UnionType
from typing import Annotated, Any, Literal, NotRequired, get_args, get_origin, get_type_hints, is_typeddict

from tools.schemas.shape import Schema, Shapes, first_paragraph, table, written
from virtune.report.json.document import Keys


class Typed(Shapes):
    """Reads TypedDicts, and dataclasses as `Shapes` does.

    The types in `named` become definitions of that name, a union one of its members. `keys` say what a mapping with
    such keys is, given the schema of its values. A class among the notes on a key is the dataclass whose fields its
    plain value has. `rules` are what holds between the keys of a type.
    """

    def __init__(
        self,
        words: Mapping[str, str] | None = None,
        *,
        left_out: frozenset[str] = frozenset(),
        named: Mapping[Any, str] | None = None,
        keys: Mapping[Keys, Callable[[Schema], Schema]] | None = None,
        rules: Mapping[Any, Schema] | None = None,
    ) -> None:
        super().__init__(words or {}, left_out=left_out)
        self._named, self._keys, self._rules = named or {}, keys or {}, rules or {}

    def of(self, annotation: Any) -> Schema:
        """Return the schema of a type; raises TypeError for a key of a TypedDict that has no words."""
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin is NotRequired:
            return self.of(arguments[0])
        if origin is Annotated:
            return self._described(*arguments)
        if origin is Literal and len(arguments) == 1:
            return {"const": arguments[0]}
        if annotation is Any:
            return {}
        if origin is UnionType and annotation in self._named:
            return self._defined(annotation)
        if is_typeddict(annotation):
            return self._defined(annotation) if annotation in self._named else self._table(annotation)
        return super().of(annotation)

    def _described(self, kind: Any, *notes: object) -> Schema:
        """The words come after the type, and limits last."""
        found = self.of(kind)
        limits: Schema = {}
        for note in notes:
            if isinstance(note, (type, UnionType, GenericAlias)):
                found = self.of(note)
            elif isinstance(note, str):
                found = {key: found[key] for key in ("type",) if key in found} | {"description": note} | {
                    key: value for key, value in found.items() if key not in ("type", "description")
                }  # fmt: skip
            elif isinstance(note, Keys):
                limits |= self._keys[note](found["additionalProperties"])
            elif isinstance(note, Mapping):
                limits |= note
        if limits.keys() & {"const", "enum", "$ref", "anyOf"}:
            found.pop("type", None)
        return found | limits

    def _defined(self, kind: Any) -> Schema:
        name = self._named[kind]
        if name not in self.definitions:
            self.definitions[name] = {}  # holds its place among the others while its keys are read
            one_of = get_args(kind)
            self.definitions[name] = {"oneOf": [*map(self.of, one_of)]} if one_of else self._table(kind)
        return {"$ref": f"#/$defs/{name}"}

    def _table(self, kind: Any) -> Schema:
        properties = {key: self.of(one) for key, one in get_type_hints(kind, include_extras=True).items()}
        silent = [key for key, schema in properties.items() if not schema.get("description")]
        if silent or not kind.__doc__:
            raise TypeError(f"{kind.__name__} has no words for {', '.join(silent) or 'itself'}")
        return table(first_paragraph(kind), properties, optional=kind.__optional_keys__) | self._rules.get(kind, {})


def schema_of(identity: str, title: str, kind: Any, shapes: Typed) -> str:
    """Return the text of a document's schema file; `identity` is the value of its key `schema`."""
    body = shapes.of(kind)
    if shapes.unused():
        raise KeyError(f"words for what is gone: {', '.join(shapes.unused())}")
    return written(identity, title, body, shapes.definitions)
