"""The playbook file as written: pydantic models of its sections other than the tasks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from testbed.timing.quantity import Seconds

SCHEMA = "testbed/v1"
IDENTIFIER = r"^[A-Za-z_][A-Za-z0-9_]*$"
Identifier = Annotated[str, Field(pattern=IDENTIFIER)]
MeasureName = Annotated[str, Field(pattern=r"^[A-Za-z][\w-]*$")]
MAX_POINTS = 100_000


class MeasureSection(BaseModel):
    """From a mark to a mark, or a value with a unit."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    start: str | None = Field(None, alias="from")
    end: str | None = Field(None, alias="to")
    value: str | None = None
    unit: str | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> MeasureSection:
        marks = self.start is not None and self.end is not None
        if (self.value is not None) == (self.start is not None or self.end is not None):
            raise ValueError("give either from and to, or value (with unit)")
        if self.value is None and not marks:
            raise ValueError("give both from and to")
        if marks and self.unit not in (None, "s"):
            raise ValueError("the unit of a measure between marks is s")
        return self


class PlaybookFile(BaseModel):
    """A playbook file.

    :ivar trials: counted trials per sweep point.
    :ivar warmup: trials before them that are stored, marked, and not counted.
    :ivar deadline: of one trial.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal["testbed/v1"] = Field(alias="schema")
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]*$", max_length=60)]
    description: str = ""
    rack: str = "mock"
    vars: dict[Identifier, Any] = Field(default_factory=dict)
    sweep: dict[Identifier, Annotated[list[Any], Field(min_length=1)]] = Field(default_factory=dict)
    trials: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    warmup: Annotated[int, Field(ge=0, le=10_000)] = 0
    tasks: Annotated[list[Any], Field(min_length=1)]
    always: list[Any] = Field(default_factory=list)
    measures: dict[MeasureName, MeasureSection] = Field(default_factory=dict)
    expect: list[str] = Field(default_factory=list)
    deadline: Annotated[Seconds, Field(gt=0)] | None = None
