"""Distributions that models draw from, as written in a rack file or a playbook.

A distribution is written as a mapping (``{kind: lognormal, median: 25 ms, sigma: 0.15}``)
or as a single quantity, which is a constant.
"""

from __future__ import annotations

import random
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from testbed.timing.quantity import Seconds


class _Distribution(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    def draw_s(self, rng: random.Random) -> float:
        """One value, in seconds, never negative."""
        raise NotImplementedError

    def typical_s(self) -> float:
        """The median in seconds, for estimates of a plan."""
        raise NotImplementedError


class Constant(_Distribution):
    """Always the same value."""

    kind: Literal["constant"] = "constant"
    value: Seconds

    def draw_s(self, rng: random.Random) -> float:
        return self.value

    def typical_s(self) -> float:
        return self.value


class Uniform(_Distribution):
    """Equally likely between ``low`` and ``high``."""

    kind: Literal["uniform"]
    low: Seconds
    high: Seconds

    @model_validator(mode="after")
    def _ordered(self) -> Uniform:
        if self.high < self.low:
            raise ValueError("high must not be below low")
        return self

    def draw_s(self, rng: random.Random) -> float:
        return rng.uniform(self.low, self.high)

    def typical_s(self) -> float:
        return (self.low + self.high) / 2


class Normal(_Distribution):
    """Normal, cut off at zero."""

    kind: Literal["normal"]
    mean: Seconds
    sd: Seconds

    def draw_s(self, rng: random.Random) -> float:
        return max(0.0, rng.gauss(self.mean, self.sd))

    def typical_s(self) -> float:
        return self.mean


class Lognormal(_Distribution):
    """Lognormal by its median and the standard deviation of its logarithm: a long right tail."""

    kind: Literal["lognormal"]
    median: Seconds
    sigma: Annotated[float, Field(ge=0, le=3)]

    def draw_s(self, rng: random.Random) -> float:
        return self.median * rng.lognormvariate(0.0, self.sigma)

    def typical_s(self) -> float:
        return self.median


AnyDistribution = Annotated[Constant | Uniform | Normal | Lognormal, Field(discriminator="kind")]


class Distribution(BaseModel):
    """Any of the distributions above, behind one name."""

    model_config = ConfigDict(frozen=True)
    of: AnyDistribution

    @model_validator(mode="before")
    @classmethod
    def _from_file(cls, value: Any) -> Any:
        if isinstance(value, _Distribution):
            return {"of": value}
        if isinstance(value, dict):
            return value if "of" in value else {"of": value}
        return {"of": {"kind": "constant", "value": value}}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """As written in files: a distribution, or a quantity for a constant."""
        of = handler.resolve_ref_schema(handler(core_schema))["properties"]["of"]
        return {"anyOf": [{"type": ["number", "string"], "examples": ["100 ms"]}, of]}

    @classmethod
    def constant(cls, value_s: float) -> Distribution:
        return cls(of=Constant(value=value_s))

    @classmethod
    def lognormal(cls, median_s: float, sigma: float) -> Distribution:
        return cls(of=Lognormal(kind="lognormal", median=median_s, sigma=sigma))

    def draw_s(self, rng: random.Random) -> float:
        return self.of.draw_s(rng)

    def typical_s(self) -> float:
        return self.of.typical_s()
