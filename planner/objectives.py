"""The objectives by which a mix is chosen: one object each, registered under the value of `policy.goal`.

An objective gives weights to three quantities of a mix: the price of its units ($/h), the cost of starts and stops
($/h), and the power of its replicas (W).  The programs of docs/explanation/planner/formulation.md, section 4, read the
weights; results and explanations read the unit and the texts.  To add an objective, define one more `Objective` and
list it in `OBJECTIVES`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

W_PER_KW = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """The footprint of 1 kWh in a region, as the request gives it (`planner.options.rule_scopes.footprint_of`)."""

    carbon_g_per_kwh: float = 0.0  # CO2-equivalent of the electricity


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What a mix minimises.  One that does not serve all demand maximises the demand served instead."""

    name: str  # its value in requests and results
    unit: str
    column: str  # heading of its value in tables
    price_weight: float = 0.0  # of 1 $/h for units
    switching_weight: float = 0.0  # of 1 $/h for starts and stops
    power_weight: Callable[[Footprint], float] | None = None  # footprint at a replica -> weight of 1 W
    needs: str | None = None  # field of the request with the footprints that the weight reads
    needs_text: str = ""  # the meaning of this field, for the error if the request lacks it
    serves_all: bool = True
    number_format: str = ",.4g"
    value_text: str = "{value}"
    optimum_text: str = "{value} by the goal {name}, nothing does with less"
    gain_text: str = "save {amount}"
    no_gain_text: str = "save nothing"

    def __str__(self) -> str:
        return self.name

    @property
    def maximises(self) -> bool:
        return not self.serves_all

    @property
    def counts_price(self) -> bool:
        """Whether the price of units counts; the unit is then $/h."""
        return self.price_weight > 0

    @property
    def counts_switching(self) -> bool:
        return self.switching_weight > 0

    @property
    def counts_power(self) -> bool:
        """Whether the power of replicas counts, and with it which of them are busy."""
        return self.power_weight is not None

    @property
    def is_price_only(self) -> bool:
        return self.counts_price and not self.counts_switching and not self.counts_power

    @property
    def worse(self) -> str:
        return "less" if self.maximises else "more"

    def weight_of_w(self, footprint: Footprint) -> float:
        return 0.0 if self.power_weight is None else self.power_weight(footprint)

    def with_unit(self, amount: float) -> str:
        """`4.29 $/h`."""
        return f"{amount:{self.number_format}} {self.unit}"

    def value(self, amount: float) -> str:
        """What a mix comes to: `612 W`, `serves 12 rps`."""
        return self.value_text.format(value=self.with_unit(amount))

    def optimum(self, amount: float) -> str:
        return self.optimum_text.format(value=self.with_unit(amount), name=self.name)

    def gain(self, amount: float) -> str:
        """What an improvement does: `save 4.29 $/h`."""
        return self.gain_text.format(amount=self.with_unit(amount))

    def worsening(self, value: float, *, than: float) -> float:
        """How much worse one value is than another; negative where it is better."""
        return than - value if self.maximises else value - than

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler, /) -> CoreSchema:
        """In documents an objective is its name."""
        by_name = core_schema.no_info_after_validator_function(
            lambda name: OBJECTIVES[name], core_schema.literal_schema(list(OBJECTIVES))
        )
        return core_schema.no_info_before_validator_function(
            lambda value: value.name if isinstance(value, cls) else value,
            by_name,
            serialization=core_schema.plain_serializer_function_ser_schema(
                str, return_schema=core_schema.literal_schema(list(OBJECTIVES))
            ),
        )


def _one(_: Footprint) -> float:
    return 1.0


def _by_carbon(footprint: Footprint) -> float:
    return footprint.carbon_g_per_kwh / W_PER_KW


COST = Objective(
    name="cost",
    unit="$/h",
    column="$/h",
    price_weight=1.0,
    number_format=",.2f",
    optimum_text="nothing cheaper exists",
)
COST_AND_SWITCHING = Objective(
    name="cost-and-switching", unit="$/h", column="$/h", price_weight=1.0, switching_weight=1.0, number_format=",.2f"
)
ENERGY = Objective(name="energy", unit="W", column="W", power_weight=_one)
CARBON = Objective(
    name="carbon",
    unit="g/h of CO2-equivalent",
    column="g/h",
    power_weight=_by_carbon,
    needs="carbon",
    needs_text="the intensity of the electricity, g/kWh",
)
SERVED = Objective(
    name="served",
    unit="rps",
    column="served rps",
    serves_all=False,
    value_text="serves {value}",
    optimum_text="{value} served, nothing serves more",
    gain_text="serve another {amount}",
    no_gain_text="serve nothing more",
)

OBJECTIVES = {objective.name: objective for objective in (COST, COST_AND_SWITCHING, ENERGY, CARBON, SERVED)}
