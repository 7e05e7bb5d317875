"""The keys of files that people write: how strictly they are read, and quantities with units as their types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, WithJsonSchema
from pydantic_core import PydanticCustomError

from perftest.spec.fields import COUNT, SECONDS, SIZE, Quantity
from perftest.spec.units import UnitError


class Model(BaseModel):
    """The strictness that all sections share."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def reader_of(quantity: Quantity) -> Callable[[object], object]:
    """A validator that keeps the rule and the fix of the parser."""

    def read(value: object) -> object:
        try:
            return quantity.parse(value)
        except UnitError as error:
            raise PydanticCustomError("quantity", "{rule}", {"rule": error.rule, "fix": error.fix}) from error

    return read


def schema_of(quantity: Quantity) -> WithJsonSchema:
    """What editors check of a quantity before the parser does."""
    names = "|".join([*(unit.replace("/", "\\/") for unit in quantity.units)])
    pattern = f"^[0-9][0-9_]*(\\.[0-9]+)?\\s*({names})?$"
    numbers = [{"type": "number", "minimum": quantity.least}, {"type": "string", "pattern": pattern}]
    words = [{"const": word} for word in quantity.words.values()]
    return WithJsonSchema({"anyOf": [*numbers, *words], "description": quantity.meaning})


Duration = Annotated[float, BeforeValidator(reader_of(SECONDS)), schema_of(SECONDS)]
Count = Annotated[int, BeforeValidator(reader_of(COUNT)), schema_of(COUNT)]
Octets = Annotated[int, BeforeValidator(reader_of(SIZE)), schema_of(SIZE)]
