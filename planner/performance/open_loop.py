"""A replica with random arrivals: its latencies, mean and percentiles, by its mean number of decoding sequences.

docs/explanation/planner/performance.md, section 4, has the formulas.  All requests have the given sizes; for the wait
for a turn, prompts vary exponentially.  The sum of the parts' percentiles is conservative.
"""

from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np

from fleet.slo import Metric, Statistic
from planner.performance.coefficients import (
    Coefficients,
    Reached,
    Terms,
    collapsed,
    config_features,
    correction_of,
    load_features,
)
from planner.performance.config import KV_BYTES, ReplicaConfig, chunk_tokens
from planner.performance.hardware_demand import Array, Demands
from planner.performance.step_time import decode_s, output_floor_s, prompt_alone_s, prompt_floor_s, prompt_work_s

MAX_GAIN = 0.95
AVERAGED = 2 / 3  # of the variance of the observed number, after averaging over a stay
PROMPT_CV = 1.0
STAY_CV = 0.5  # outputs of one bucket
LINK_REACHED = 0.8  # of a host link's rate, for transfers of megabytes


@dataclass(frozen=True)
class OpenLoop:
    """Rows are request sizes, columns mean numbers of decoding sequences."""

    config: ReplicaConfig
    coefficients: Coefficients
    demand: Demands  # each field with a second axis of length one
    decoding: Array  # mean number; on a prefill replica, prompts in service
    places: Array  # most sequences at once
    arrival_cv: float

    @property
    def reached(self) -> Reached:
        return self.coefficients.reached

    def tpot_s(self, statistic: Statistic) -> Array:
        if (quantile := statistic.quantile) is None:
            return self._mean_tpot_s
        calm_s, reading_s = self._step_parts_s(self._observed_batch(statistic))
        return calm_s + np.maximum(reading_s, self._interruptions_s(quantile))

    def ttft_s(self, statistic: Statistic) -> Array:
        """Time to the first token, with the cache's transfer to a decode replica where there is one."""
        turn_s, place_s = self._turn_wait_s, self._place_wait_s
        if (quantile := statistic.quantile) is not None:
            turn_s = wait_quantile_s(turn_s, delayed=self.turn_load, quantile=quantile)
            place_s = wait_quantile_s(place_s, delayed=self._place_load, quantile=quantile)
        return self._first_token_s(self._observed_batch(statistic)) + turn_s + place_s

    def e2e_s(self, statistic: Statistic) -> Array:
        first_s = 0.0 if self.config.role == "decode" else self.ttft_s(statistic)
        return first_s + (self.demand.output_tokens - 1) * self.tpot_s(statistic)

    def latency_s(self, metric: Metric, statistic: Statistic) -> Array:
        by_metric = {Metric.TTFT: self.ttft_s, Metric.TPOT: self.tpot_s, Metric.E2E: self.e2e_s}
        return by_metric[metric](statistic)

    @cached_property
    def rate_rps(self) -> Array:
        """Arrival rate for this mean number of decoding sequences (Little's law); on a prefill replica, of prompts."""
        if self.config.role == "prefill":
            return self.decoding / self._work_s
        return self.decoding / (self.demand.output_tokens * self._mean_tpot_s)

    @cached_property
    def hardware_limit_rps(self) -> Array:
        """The data sheet's limit on the rate: all arithmetic and all cache reads, overlapping."""
        prompt_s = 0.0 if self.config.role == "decode" else prompt_floor_s(self.demand)
        output_s = 0.0 if self.config.role == "prefill" else output_floor_s(self.demand)
        return np.asarray(1 / (prompt_s + output_s))

    @cached_property
    def turn_load(self) -> Array:
        """Share of the time in which a prompt is read."""
        if self.config.role == "decode":
            return np.zeros_like(self.decoding)
        return np.minimum(1.0, self.rate_rps * self._work_s)

    @cached_property
    def _work_s(self) -> Array:
        """One prompt's work while others decode."""
        apart = self.config.role != "both"
        share = 1.0 if apart else self.reached.interference
        factor = share * np.exp(self._correction(self._terms[0], np.ones(1)))
        return prompt_work_s(self.demand, self.reached, factor)

    @cached_property
    def _turn_wait_s(self) -> Array:
        return turn_wait_s(
            load=self.turn_load, service_s=self._work_s, arrival_cv=self.arrival_cv, service_cv=PROMPT_CV
        )

    @cached_property
    def _place_wait_s(self) -> Array:
        if self.config.role == "prefill":
            return np.zeros_like(self.decoding)
        stay_s = self.demand.output_tokens * self._mean_tpot_s / (1 - self._gain)
        return slots_wait_s(
            busy=self.decoding,
            slots=self.places,
            service_s=stay_s,
            arrival_cv=self.arrival_cv,
            service_cv=STAY_CV,
        )

    @cached_property
    def _place_load(self) -> Array:
        """Share of requests that find no place (Sakasegawa's numerator)."""
        busy = np.minimum(1.0, self.decoding / self.places)
        return np.asarray(busy ** (np.sqrt(2 * (self.places + 1)) - 1))

    def _observed_batch(self, statistic: Statistic) -> Array:
        others = np.zeros_like(self.decoding) if self.config.role == "prefill" else self.decoding
        if (quantile := statistic.quantile) is not None:
            averaged = 1 - (1 - self._gain) * (1 - AVERAGED)
            spread = np.sqrt(others * (1 + self.arrival_cv**2) / 2 * averaged / (1 - self._gain))
            others = np.maximum(0.0, others + NormalDist().inv_cdf(quantile) * spread)
        return np.minimum(1 + others, np.maximum(1.0, self.places))

    @cached_property
    def _gain(self) -> Array:
        """Feedback of the batch on itself: relative growth of TPOT over that of the batch, along the grid."""
        if self.config.role == "prefill" or self.decoding.shape[1] < 2:
            return np.zeros_like(self.decoding)
        slower = np.gradient(np.log(self._mean_tpot_s), axis=1) / np.gradient(np.log(self.decoding), axis=1)
        return np.asarray(np.clip(slower, 0.0, MAX_GAIN))

    @cached_property
    def _mean_tpot_s(self) -> Array:
        calm_s, reading_s = self._mean_parts_s
        return calm_s + reading_s

    @cached_property
    def _mean_parts_s(self) -> tuple[Array, Array]:
        return self._step_parts_s(self._observed_batch(Statistic.MEAN))

    def _step_parts_s(self, batch: Array) -> tuple[Array, Array]:
        """A step of this batch without prompts, and the mean addition of prompts."""
        factor = np.exp(self._correction(self._terms[0], batch))
        calm_s = decode_s(self.demand, self.reached, batch, factor)
        if self.config.role != "both":
            return calm_s, np.zeros_like(calm_s)
        work_s = prompt_work_s(self.demand, self.reached, self.reached.interference * factor)
        return calm_s, batch * work_s / self.demand.output_tokens

    def _interruptions_s(self, quantile: float) -> Array:
        """The addition of prompts to each token after the first, at a percentile of the prompts read during a stay."""
        if self.config.role != "both":
            return np.zeros_like(self.decoding)
        gaps = np.maximum(1.0, self.demand.output_tokens - 1)
        _, reading_s = self._mean_parts_s
        of_others = self.decoding / (1 + self.decoding)  # its own prompt is read before its first token
        load = np.minimum(self.turn_load, MAX_GAIN)
        prompts = interruptions(
            of_others * gaps * reading_s / self._work_s, load=load, arrival_cv=self.arrival_cv, quantile=quantile
        )
        fullest_s = self._work_s * chunk_tokens(self.config) / self.demand.input_tokens
        return np.asarray(np.minimum(prompts * self._work_s / gaps, fullest_s))

    def corrections(self, batch: Array) -> tuple[Array, Array]:
        """Logarithms of the factors on TPOT and TTFT."""
        return self._correction(self._terms[0], batch), self._correction(self._terms[1], batch)

    @property
    def first_token_alone_s(self) -> Array:
        """Physical time to the first token of a lone request, before the correction."""
        return self._first_token_physical_s(np.ones((1, 1)))

    def _first_token_physical_s(self, batch: Array) -> Array:
        reached = self.reached
        return (
            reached.request_s
            + prompt_alone_s(self.demand, reached)
            + reached.first_steps * decode_s(self.demand, reached, batch)
            + (reached.transfer_s if self.config.role == "prefill" else 0.0)
        )

    def _first_token_s(self, batch: Array) -> Array:
        _, correction = self.corrections(batch)
        first_s = np.maximum(self._first_token_physical_s(batch) * np.exp(correction), prompt_floor_s(self.demand))
        return first_s + self._transfer_s

    @cached_property
    def _transfer_s(self) -> Array:
        """The prompt's cache over the host links, all GPUs of the replica at once."""
        if self.config.role != "prefill":
            return np.zeros(1)
        config = self.config
        link = config.gpu.host_link_gb_per_s if config.kv_link_gb_per_s is None else config.kv_link_gb_per_s
        tokens = self.demand.input_tokens.ravel()
        sent = [config.model.kv_cache_bytes(tokens=int(n), kv_bytes=KV_BYTES[config.kv_precision]) for n in tokens]
        return np.array(sent)[:, None] / (LINK_REACHED * link * 1e9 * config.gpus)

    @cached_property
    def _terms(self) -> tuple[Terms, Terms]:
        fixed = config_features(self.config, software_age=self.coefficients.software_age)
        chosen = self.coefficients.correction(self.config.gpu.name)
        return collapsed(chosen.tpot, fixed), collapsed(chosen.ttft, fixed)

    def _correction(self, terms: Terms, batch: Array) -> Array:
        load = load_features(
            batch=batch,
            input_tokens=self.demand.input_tokens,
            output_tokens=self.demand.output_tokens,
            apart=float(self.config.role != "both"),
        )
        return correction_of(terms, {"one": 1.0, **load})


def slots_wait_s(*, busy: Array, slots: Array, service_s: Array, arrival_cv: float, service_cv: float) -> Array:
    """Mean wait for one of many places: Sakasegawa's formula for GI/G/c (Ann. Inst. Stat. Math. 29, 1977)."""
    load = np.minimum(busy / slots, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        wait_s = load ** (np.sqrt(2 * (slots + 1)) - 1) / (slots * (1 - load)) * service_s
    wait_s = np.where(load >= 1, np.inf, wait_s)
    return np.asarray((arrival_cv**2 + service_cv**2) / 2 * wait_s)


def turn_wait_s(*, load: Array, service_s: Array, arrival_cv: float, service_cv: float) -> Array:
    """Mean wait for a single place: the same formula with c = 1, Kingman's, exact for Poisson arrivals."""
    return slots_wait_s(busy=load, slots=np.ones(1), service_s=service_s, arrival_cv=arrival_cv, service_cv=service_cv)


def wait_quantile_s(mean_s: Array, *, delayed: Array, quantile: float) -> Array:
    """Quantile of a wait that is 0 except for a share `delayed`, and exponential there: the heavy-traffic limit."""
    beyond = 1 - quantile
    with np.errstate(divide="ignore", invalid="ignore"):
        found = mean_s / delayed * np.log(delayed / beyond)
    return np.asarray(np.where(delayed > beyond, found, 0.0))


def interruptions(mean: Array, *, load: Array, arrival_cv: float, quantile: float) -> Array:
    """Prompts read during a stay, at a percentile.

    Every prompt read during a stay lengthens it, and more arrive meanwhile, so their number is that of a busy period:
    the generalised Poisson distribution (Consul and Jain, Technometrics 15, 1973), with variance
    mean / (1 - load)^2 and a third cumulant of (1 + 2 load) / (1 - load)^4 times the mean.  The percentile is its
    expansion by Cornish and Fisher; it is 0 where fewer requests than the share beyond it meet a prompt.
    """
    normal, uneven = NormalDist().inv_cdf(quantile), (1 + arrival_cv**2) / 2
    spread = normal * np.sqrt(mean * uneven) / (1 - load)
    skew = (normal**2 - 1) / 6 * (1 + 2 * load) / (1 - load) ** 2 * uneven
    found = np.maximum(0.0, mean + spread + skew)
    return np.asarray(np.where(-np.expm1(-mean) > 1 - quantile, found, 0.0))
