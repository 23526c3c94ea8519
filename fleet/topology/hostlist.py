"""Element names, and the short form for a range: `node-[01-16]` stands for node-01, node-02, ... node-16.

A range keeps the width of its first number, as hostlists of Slurm and pdsh do.
"""

import re
from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator, StringConstraints

MAX_RANGE = 4096

_RANGE = re.compile(r"\[([0-9]+)-([0-9]+)\]")
_PLAIN = r"[A-Za-z0-9][A-Za-z0-9._:/-]*"
_SERIES = rf"^{_PLAIN}(\[[0-9]{{1,6}}-[0-9]{{1,6}}\][A-Za-z0-9._:/-]*)?$"


def count(series: str) -> int:
    match = _RANGE.search(series)
    if match is None:
        return 1
    low, high = match.groups()
    names = int(high) - int(low) + 1
    if not 1 <= names <= MAX_RANGE:
        raise ValueError(f"the range [{low}-{high}] must rise and have at most {MAX_RANGE} names")
    return names


def expand(series: str) -> tuple[str, ...]:
    match = _RANGE.search(series)
    if match is None:
        return (series,)
    low = match.group(1)
    before, after = series[: match.start()], series[match.end() :]
    first = int(low)
    return tuple(f"{before}{number:0{len(low)}d}{after}" for number in range(first, first + count(series)))


def expand_all(series: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for one in series for name in expand(one))


def _counted(series: str) -> str:
    count(series)
    return series


Name = Annotated[str, StringConstraints(pattern=rf"^{_PLAIN}$", max_length=253)]
NameSeries = Annotated[str, StringConstraints(pattern=_SERIES, max_length=253), AfterValidator(_counted)]
