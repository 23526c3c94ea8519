"""A stream of requests with arrival times and sizes: a day from an hour of trace, at another rate.

- `scaled` speeds the clock up or slows it down.  Every gap shrinks by the same factor, so the coefficient of variation
  of the gaps and the order of sizes stay: bursts keep their number of requests.
- `shaped` stretches and compresses time so that the rate follows a demand series; inside each step bursts stay.
- `repeated` puts copies in sequence and changes no gap except the one at the seam.
- `synthetic_arrivals` draws a stream from a histogram of sizes and a demand series.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from fleet.demand import DemandSeries
from fleet.documents import RuleError, Violation
from fleet.sizes.histogram import SizeBuckets
from fleet.traces import Trace

Seconds = npt.NDArray[np.float64]
Tokens = npt.NDArray[np.int64]

SECONDS_PER_HOUR = 3600.0
MAX_CV = 20.0
MAX_REQUESTS = 10_000_000  # a day at 115/s; thin the stream and the fleet for more


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """Requests in order of arrival, over a duration that starts at 0.  The arrays are read-only."""

    arrival_s: Seconds
    input_tokens: Tokens
    output_tokens: Tokens
    duration_s: float

    def __post_init__(self) -> None:
        _refuse_many(self.requests)
        RuleError.raise_for(_violations(self))
        for array in (self.arrival_s, self.input_tokens, self.output_tokens):
            array.setflags(write=False)

    @classmethod
    def of(
        cls,
        *,
        times_s: Sequence[float] | Seconds,
        input_tokens: Sequence[int] | Tokens,
        output_tokens: Sequence[int] | Tokens,
        duration_s: float | None = None,
    ) -> Self:
        """Requests in any order, the first of them at 0.

        The default duration ends one mean gap after the last request.  A request without tokens counts as one token.
        """
        times = np.array(times_s, dtype=np.float64)
        inputs, outputs = np.array(input_tokens, dtype=np.int64), np.array(output_tokens, dtype=np.int64)
        RuleError.raise_for(_unlike_lengths(times, inputs, outputs))
        order = np.argsort(times, kind="stable")
        arrival_s = times[order] - times[order[0]]
        if duration_s is None:
            duration_s = float(arrival_s[-1]) * len(times) / max(1, len(times) - 1) or 1.0
        inputs[inputs == 0] = outputs[outputs == 0] = 1
        return cls(arrival_s, inputs[order], outputs[order], duration_s)

    @classmethod
    def of_trace(cls, trace: Trace) -> Self:
        return cls.of(
            times_s=trace.arrival_s,
            input_tokens=trace.input_tokens,
            output_tokens=trace.output_tokens,
            duration_s=trace.duration_s or None,
        )

    @property
    def requests(self) -> int:
        return len(self.arrival_s)

    @property
    def rate_rps(self) -> float:
        return self.requests / self.duration_s

    def repeated(self, *, hours: float) -> Self:
        """Copies in sequence until this many hours are full; the last copy is cut off."""
        _refuse_outside("hours", hours)
        duration_s = hours * SECONDS_PER_HOUR
        copies = self._copies(duration_s / self.duration_s)
        begin_s = np.arange(copies, dtype=np.float64) * self.duration_s
        return self._laid(np.add.outer(begin_s, self.arrival_s).ravel(), duration_s=duration_s)

    def scaled(self, factor: float) -> Self:
        """The same requests at a multiple of the rate, in proportionally less time."""
        _refuse_outside("factor", factor)
        return type(self)(
            self.arrival_s / factor, self.input_tokens.copy(), self.output_tokens.copy(), self.duration_s / factor
        )

    def at_rate(self, rate_rps: float, *, hours: float) -> Self:
        """This many hours at this mean rate, by scaling the clock and repeating; bursts stay."""
        return self.scaled(rate_rps / self.rate_rps).repeated(hours=hours)

    def shaped(self, demand: DemandSeries) -> Self:
        """As many requests as the series has, at its rates, with repetition as needed."""
        copies = self._copies(demand.requests / self.requests)
        begun = np.arange(copies, dtype=np.float64) * self.requests
        expected = np.add.outer(begun, self.arrival_s * self.rate_rps).ravel()
        return self._laid(moments(expected, demand), duration_s=demand.duration_s)

    def _copies(self, wanted: float) -> int:
        """Whole copies; rejected before they fill the memory."""
        _refuse_many(wanted * self.requests)
        return max(1, ceil(wanted))

    def _laid(self, times_s: Seconds, *, duration_s: float) -> Self:
        """Copies of the requests at these times, without those after the end."""
        copies = len(times_s) // self.requests
        order = np.argsort(times_s, kind="stable")
        order = order[times_s[order] < duration_s]
        inputs, outputs = np.tile(self.input_tokens, copies)[order], np.tile(self.output_tokens, copies)[order]
        return type(self)(times_s[order], inputs, outputs, duration_s)


def moments(expected: Seconds, demand: DemandSeries) -> Seconds:
    """Times at which the series reaches these expected counts; infinity beyond its end."""
    arrived = np.concatenate(([0.0], np.cumsum(demand.rates_rps) * demand.step_s))
    ends_s = np.arange(len(arrived)) * demand.step_s
    rising = np.concatenate((np.diff(arrived) > 0, [True]))  # a step without demand takes no time of the process
    times_s: Seconds = np.interp(expected, arrived[rising], ends_s[rising])
    step = np.clip(np.searchsorted(arrived, expected, side="right") - 1, 0, len(demand.rates_rps) - 1)
    rates_rps = np.array(demand.rates_rps)[step]
    inside = rates_rps > 0
    times_s[inside] = ends_s[step[inside]] + (expected[inside] - arrived[step[inside]]) / rates_rps[inside]
    times_s[expected >= arrived[-1]] = np.inf
    return times_s


def synthetic_arrivals(
    sizes: SizeBuckets, demand: DemandSeries, *, rng: np.random.Generator, cv: float = 1.0
) -> Stream:
    """Requests whose mean rate follows the series, with sizes from a histogram.

    The gaps are gamma distributed in the time of the demand; `cv` is their coefficient of variation: 1 gives a Poisson
    process, less gives more even arrivals, more gives bursts.  In production Gamma and Weibull gaps often fit better
    than exponential ones (ServeGen, arXiv 2505.09999).
    """
    if not 0 < cv <= MAX_CV:
        raise RuleError([(("cv",), f"{cv:g} is out of range, expected more than 0 and at most {MAX_CV:g}")])
    _refuse_many(demand.requests)
    arrival_s = moments(_renewals(demand.requests, rng=rng, cv=cv), demand)
    arrival_s = arrival_s[np.isfinite(arrival_s)]
    input_tokens, output_tokens = _sizes(sizes, len(arrival_s), rng=rng)
    return Stream(arrival_s, input_tokens, output_tokens, demand.duration_s)


def _refuse_many(requests: float) -> None:
    if not requests <= MAX_REQUESTS:
        raise RuleError([((), f"{requests:,.0f} requests, expected at most {MAX_REQUESTS:,}")])


def _refuse_outside(field: str, value: float) -> None:
    if not 0 < value < np.inf:
        raise RuleError([((field,), f"{value:g} is out of range, expected more than 0")])


def _unlike_lengths(*arrays: npt.NDArray[Any]) -> Iterator[Violation]:
    lengths = [len(array) for array in arrays]
    if len(set(lengths)) > 1:
        yield (
            (),
            f"{lengths[0]} times, {lengths[1]} input sizes and {lengths[2]} output sizes, expected as many of each",
        )
    elif not lengths[0]:
        yield (), "a stream without requests cannot be replayed, expected at least one request"


def _violations(stream: Stream) -> Iterator[Violation]:
    yield from _unlike_lengths(stream.arrival_s, stream.input_tokens, stream.output_tokens)
    for field, sizes in (("input_tokens", stream.input_tokens), ("output_tokens", stream.output_tokens)):
        for position in np.flatnonzero(sizes < 1)[:1]:
            yield (field, int(position)), f"{sizes[position]} is out of range, expected 1 or more"
    arrival_s = stream.arrival_s
    if not np.isfinite(arrival_s).all():
        yield ("arrival_s",), "expected finite seconds"
    elif stream.requests and (arrival_s[0] < 0 or (np.diff(arrival_s) < 0).any()):
        yield ("arrival_s",), "must begin at 0 or later and not fall"
    elif stream.requests and not arrival_s[-1] <= stream.duration_s < np.inf:
        yield ("duration_s",), f"{stream.duration_s:g} s is out of range, expected at least {arrival_s[-1]:g} s"
    if not stream.duration_s > 0:
        yield ("duration_s",), f"{stream.duration_s:g} s is out of range, expected more than 0 s"


def _renewals(expected: float, *, rng: np.random.Generator, cv: float) -> Seconds:
    """Times of a renewal process of rate 1, up to this one and a little beyond."""
    shape = 1.0 / cv**2
    reached = np.zeros(1)
    while reached[-1] < expected:
        missing = int(expected - reached[-1] + 4.0 * cv * expected**0.5) + 16
        gaps = rng.gamma(shape, 1.0 / shape, size=missing)
        reached = np.concatenate((reached, reached[-1] + np.cumsum(gaps)))
    return reached[1:]


def _sizes(sizes: SizeBuckets, count: int, *, rng: np.random.Generator) -> tuple[Tokens, Tokens]:
    """Buckets by their shares; inside a bucket sizes are uniform up to its edge."""
    buckets = list(sizes.buckets())
    shares = np.array([bucket.share for bucket in buckets])
    drawn = rng.choice(len(buckets), size=count, p=shares / shares.sum())
    lower = np.array([bucket.lower for bucket in buckets])[drawn]
    edge = np.array([bucket.edge for bucket in buckets])[drawn]
    tokens = rng.integers(lower, edge, endpoint=False) + 1
    return tokens[:, 0].copy(), tokens[:, 1].copy()
