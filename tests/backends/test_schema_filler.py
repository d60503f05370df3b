"""What a scripted model fills in validates, whatever the schema asks for."""

import json
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Literal, Optional
from uuid import UUID

import pytest
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel, Field, TypeAdapter
from typing_extensions import TypedDict

from vinelm.backends.offline.schema_filler import fill


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Step(BaseModel):
    title: str = Field(min_length=3, max_length=8)
    minutes: int = Field(gt=4, le=90, multiple_of=5)
    kind: Literal["read", "write"]


class Plan(BaseModel):
    """Everything that people put into a schema."""

    steps: Annotated[list[Step], Field(min_length=2, max_length=4)]
    colour: Colour
    note: str | None = None
    due: date
    at: datetime
    ident: UUID
    code: Annotated[str, Field(pattern=r"^[A-Z]{2}-\d{3,5}$")]
    score: float = Field(gt=0, lt=1)
    price: Decimal | None
    either: int | Step
    pair: tuple[int, str]
    by_name: dict[str, float]
    tags: set[Colour] = Field(min_length=2)
    flag: bool


class Tree(BaseModel):
    value: int = Field(ge=-5, le=-2)
    left: Optional["Tree"] = None
    children: list["Tree"] = []


@dataclass
class Point:
    x: float
    label: str


class Typed(TypedDict):
    names: list[str]
    point: Point


KINDS = [Plan, Tree, Point, Typed, list[Step], dict[str, Step], Step | None, Colour]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_it_validates(kind):
    adapter = TypeAdapter(kind)
    adapter.validate_json(json.dumps(fill(adapter.json_schema())))


@pytest.mark.parametrize("kind", [Plan, Tree, Step])
def test_it_validates_as_a_tool(kind):
    kind.model_validate(fill(convert_to_openai_tool(kind)["function"]["parameters"], "a scripted answer that is long"))


@pytest.mark.parametrize("pattern", [r"^\d{4}$", r"^(yes|no)$", r"[a-f0-9]{8}", r"^[^\s]+@x\.org$", r"^SELECT .*"])
def test_patterns(pattern):
    class Matching(BaseModel):
        text: str = Field(pattern=pattern)

    Matching.model_validate(fill(Matching.model_json_schema()))
