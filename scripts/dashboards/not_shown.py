"""The exported metrics that no panel shows, each with the reason.  Any other metric without a panel fails the tests."""

from typing import Final

NOT_SHOWN: Final = {
    "fleetwright_power_row_expected": "the alert FleetwrightGuardGone compares it with the rows that have a guard",
}
