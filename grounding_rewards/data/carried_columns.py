"""Columns that the package does not know, such as age, view or licence: carried along, for subgroups and sources."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyarrow import DataType


class CarriedColumns:
    """Finds for each column a type that holds the values of every row.

    Texts, numbers, truth values and lists of these keep their type, whole numbers beside fractions become fractions;
    objects, and values of several types, become JSON text. A column without any value is left out.

    >>> columns = CarriedColumns()
    >>> for row in ({"age": 63, "view": "PA"}, {"age": 41.5, "view": None}, {"view": ["AP", 2]}):
    ...     columns.add(row)
    >>> columns.values({"age": 63, "view": ["AP", 2]})
    {'age': 63, 'view': '["AP", 2]'}
    >>> columns.values({})
    {'age': None, 'view': None}
    """

    def __init__(self) -> None:
        self._types: dict[str, DataType] = {}

    def add(self, row: Mapping[str, Any]) -> None:
        """Take the values of one row into account."""
        for name, value in row.items():
            if value is not None:
                found = _type_of(value)
                self._types[name] = _joined(self._types.get(name, found), found)

    def values(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The values of one row in the types of the columns, None where the row has none."""
        return {name: _held(row.get(name), kind) for name, kind in self.types.items()}

    @property
    def types(self) -> dict[str, DataType]:
        """The arrow type of each column that has a value."""
        from pyarrow.types import is_null

        return {name: kind for name, kind in self._types.items() if not is_null(_innermost(kind))}

    def features(self) -> dict[str, Any]:
        """The types of the columns as `datasets` writes them."""
        from datasets.features.features import generate_from_arrow_type

        return {name: generate_from_arrow_type(kind) for name, kind in self.types.items()}


def _type_of(value: Any) -> DataType:
    import pyarrow as pa

    if isinstance(value, str):
        return pa.string()
    try:
        kind = pa.array([value]).type
    except (pa.ArrowException, OverflowError):
        return pa.string()
    return pa.string() if pa.types.is_struct(_innermost(kind)) else kind


def _innermost(kind: DataType) -> DataType:
    from pyarrow.types import is_list

    while is_list(kind):
        kind = kind.value_type
    return kind


def _joined(one: DataType, other: DataType) -> DataType:
    import pyarrow as pa

    if one == other:
        return one
    try:
        schemas = [pa.schema([("value", kind)]) for kind in (one, other)]
        return pa.unify_schemas(schemas, promote_options="permissive").field("value").type
    except pa.ArrowException:
        return pa.string()


def _held(value: Any, kind: DataType) -> Any:
    from pyarrow.types import is_string

    if value is None or isinstance(value, str) or not is_string(kind):
        return value
    return json.dumps(value, ensure_ascii=False)
