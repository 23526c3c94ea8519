"""Evidence of one-way probes: tails and whole delays, with any clocks, from the start and later."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults.diagnosis import Direction
from faults.observations import Observation, Probe
from faults.slow.diagnoses import Hypothesis, Named, NetworkFault, direction, named
from faults.slow.merge import Slow, joined
from faults.slow.probe_likelihood import ProbeEvidence, View
from faults.slow.probe_ratios import BASELINE, Probes, mode
from faults.slow.sparse_fit import Entity

NODES, EVERY_S, WIRE_S = 8, 0.5, 0.0026
RING = [(node, (node + way) % NODES) for node in range(NODES) for way in (1, -1)]
Slowdown = Callable[[int, int, float], float]


def observations(
    slowdown: Slowdown,
    until_s: float,
    *,
    seed: int = 0,
    skew_s: float = 0.0,
    beside: float = 0.25,
    held: float = 0.0,
    tails: bool = True,
) -> list[Observation]:
    """Trains of all ring neighbours.

    A share `beside` waits behind bytes of the job, a share `held` waits at the receiver until the second half has
    caught up, and one train in fifty is too fast.
    """
    rng = np.random.default_rng(seed)
    offset_s = rng.uniform(-skew_s, skew_s, NODES)
    found = []
    for number in range(int(until_s / EVERY_S)):
        for source, target in RING:
            at_s = EVERY_S * number
            wire_s = WIRE_S * slowdown(source, target, at_s) * float(rng.normal(1.0, 0.003))
            met_s = float(rng.exponential(WIRE_S)) if rng.random() < beside else 0.0
            if held and rng.random() < held:
                wire_s, met_s = WIRE_S * float(rng.normal(1.0, 0.003)), 0.0
            caught_up_s = 0.3 * wire_s * (rng.random() < 0.02)
            sent_s, received_s = at_s + offset_s[source], at_s + wire_s + met_s + offset_s[target]
            half_s = received_s - (wire_s + met_s - caught_up_s) / 2.0
            values = Probe(65536, sent_s, received_s, received_s - half_s if tails else None)
            found.append(Observation(at_s + 0.25, target, values, peer=source))
    return found


def evaluated(trains: list[Observation], until_s: float, suspected_from_s: float) -> tuple[View, ...]:
    evidence, at = ProbeEvidence(NODES, keep_s=10.0, baseline_age_s=5.0), 0
    views: tuple[View, ...] = ()
    for now_s in np.arange(0.5, until_s + 0.01, 0.5):
        while at < len(trains) and trains[at].at_s <= now_s:
            evidence.observe(trains[at])
            at += 1
        views = evidence.evaluate(float(now_s), suspected=bool(now_s >= suspected_from_s))
    return views


def places(views: tuple[View, ...], *, own: bool) -> list[tuple[int, int | None, Direction]]:
    (view,) = (view for view in views if view.own is own)
    return [(e.node, e.peer, e.way) for e in view.probed().entities(1e-4, {})]


FAULTS: dict[str, tuple[tuple[int, int | None, Direction], Slowdown]] = {
    "tx": ((3, None, Direction.TX), lambda source, _target, _at_s: 1.25 if source == 3 else 1.0),
    "rx": ((3, None, Direction.RX), lambda _source, target, _at_s: 1.25 if target == 3 else 1.0),
    "link": ((3, 2, Direction.FORWARD), lambda source, target, _at_s: 1.25 if (source, target) == (3, 2) else 1.0),
}


@pytest.mark.parametrize("name", FAULTS)
def test_four_seconds_distinguish_sender_receiver_and_link(name: str) -> None:
    place, slowdown = FAULTS[name]
    for seed in range(5):
        trains = observations(lambda s, t, at_s: slowdown(s, t, at_s) if at_s >= 15.0 else 1.0, 19.0, seed=seed)
        assert places(evaluated(trains, 19.0, 16.0), own=True) == [place]


@pytest.mark.parametrize("name", ["tx", "link"])
def test_trains_that_wait_at_the_receiver_do_not_hide_a_fault(name: str) -> None:
    place, slowdown = FAULTS[name]
    for seed in range(6):
        trains = observations(
            lambda s, t, at_s: slowdown(s, t, at_s) if at_s >= 15.0 else 1.0, 21.0, seed=seed, held=0.2
        )
        assert places(evaluated(trains, 21.0, 16.0), own=True) == [place], seed


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_from_the_first_second_is_found_by_peers_for_any_clock_offset(name: str) -> None:
    place, slowdown = FAULTS[name]
    trains = observations(slowdown, 14.0, skew_s=0.05)
    assert places(evaluated(trains, 14.0, 99.0), own=False) == [place]


def test_without_tails_clock_offsets_do_not_hide_a_change() -> None:
    place, slowdown = FAULTS["tx"]
    trains = observations(
        lambda s, t, at_s: slowdown(s, t, at_s) if at_s >= 15.0 else 1.0, 18.5, skew_s=0.001, tails=False
    )
    assert places(evaluated(trains, 18.5, 16.0), own=True) == [place]


@pytest.mark.parametrize("beside", [0.25, 0.6])
def test_healthy_links_are_rarely_suspected_for_any_share_of_delayed_trains(beside: float) -> None:
    """At most 2 of 240 evaluations have a false finding, before the checks of harm and persistence."""
    trains = observations(lambda *_: 1.0, 120.0, beside=beside)
    evidence, at, found = ProbeEvidence(NODES, keep_s=10.0, baseline_age_s=5.0), 0, 0
    for now_s in np.arange(0.5, 120.0, 0.5):
        while at < len(trains) and trains[at].at_s <= now_s:
            evidence.observe(trains[at])
            at += 1
        found += sum(
            bool(view.probed().entities(1e-4, {})) for view in evidence.evaluate(float(now_s), suspected=False)
        )
    assert found <= 2


def test_two_simultaneous_faults_are_both_found() -> None:
    def slowdown(source: int, target: int, at_s: float) -> float:
        return 1.0 if at_s < 15.0 else 2.0 if source == 1 else 1.4 if (source, target) == (5, 4) else 1.0

    found = places(evaluated(observations(slowdown, 19.0), 19.0, 16.0), own=True)
    assert set(found) == {(1, None, Direction.TX), (5, 4, Direction.FORWARD)}


def test_a_socket_finding_that_probes_refute_is_dropped() -> None:
    views = evaluated(observations(lambda *_: 1.0, 20.0, beside=0.0), 20.0, 99.0)
    suspected = [
        Slow(Entity(2, None, Direction.TX, 0.3), 0.2, own=True),
        Slow(Entity(4, 3, Direction.FORWARD, 0.3), 0.2, own=False),
        Slow(Entity(4, 3, Direction.FORWARD, 0.3), 0.2, own=True),  # its bytes may take another path than probes
        Slow(Entity(4, 6, Direction.FORWARD, 0.3), 0.2, own=False),  # no probes cover it
    ]
    kept = joined(
        suspected,
        views,
        false_per_window=1e-4,
        of_sockets=dict,
        make_finding=lambda entity, own: Slow(entity, 0.1, own, probed=True),
    )
    assert [(slow.entity.place, slow.own) for slow in kept] == [((4, 3), True), ((4, 6), False)]


def test_socket_evidence_for_one_link_does_not_outweigh_probes_of_its_sender() -> None:
    trains = observations(lambda s, _t, at_s: 1.5 if s == 3 and at_s >= 15.0 else 1.0, 18.0)
    sender, busiest = Entity(3, None, Direction.TX, 0.3), Entity(3, 2, Direction.FORWARD, 0.4)
    suspected = [Slow(busiest, 0.2, own=True, log_likelihoods={busiest: 40.0, sender: 12.0})]
    (_, _, kept) = joined(
        suspected,
        evaluated(trains, 18.0, 16.0),
        false_per_window=1e-4,
        of_sockets=dict,
        make_finding=lambda entity, own: Slow(entity, 0.1, own, probed=True),
    )
    assert kept.entity == busiest
    assert max(kept.log_likelihoods, key=lambda entity: kept.log_likelihoods[entity]).place == (3, None)


def test_socket_evidence_for_a_nic_does_not_outweigh_probes_of_its_slow_link() -> None:
    trains = observations(lambda s, t, at_s: 1.5 if (s, t) == (3, 2) and at_s >= 15.0 else 1.0, 19.0)
    nic, link = Entity(3, None, Direction.TX, 0.3), Entity(3, 2, Direction.FORWARD, 0.4)
    suspected = [Slow(nic, 0.2, own=True, log_likelihoods={nic: 90.0, link: 5.0})]
    *_, kept = joined(
        suspected,
        evaluated(trains, 19.0, 16.0),
        false_per_window=1e-4,
        of_sockets=dict,
        make_finding=lambda entity, own: Slow(entity, 0.1, own, probed=True),
    )
    assert kept.entity == nic
    assert max(kept.log_likelihoods, key=lambda entity: kept.log_likelihoods[entity]).place == (3, 2)


def test_windows_with_probe_evidence_override_windows_with_sockets_alone() -> None:
    sender, busiest = (3, None, Direction.TX), (3, 2, Direction.FORWARD)

    def wire(nats: dict[Hypothesis, float], *, probed: bool) -> NetworkFault:
        slow = Slow(Entity(3, None, Direction.TX, 0.3), 0.2, own=True, probed=probed)
        return NetworkFault(slow, nats, (), 1.2, measured=True)

    sockets = wire({sender: 10.0, busiest: 40.0}, probed=False)
    probes = wire({sender: 14.0, busiest: 9.0}, probed=True)
    assert named([sockets, sockets]) == busiest
    assert named([sockets, sockets, probes]) == sender
    assert direction([sockets, sockets, probes], 3) is Direction.TX
    link = Named(3, 2, 9.0)
    assert link.updated([sockets, sockets], now_s=10.0) is link
    assert link.updated([sockets, probes], now_s=10.0) == Named(3, None, 10.0)
    assert link.updated([sockets, wire({sender: 12.0, busiest: 9.0}, probed=True)], now_s=10.0) is link  # not clearly
    assert Named(7, 6, 9.0).updated([probes], now_s=10.0) == Named(7, 6, 9.0)  # another node
    assert Named(3, None, 9.0).updated([wire({busiest: 40.0}, probed=True)], now_s=10.0) == Named(3, None, 9.0)


def test_memory_is_bounded_without_evaluations() -> None:
    probes = Probes(2, keep_s=10.0, baseline_age_s=5.0)
    for number in range(2_000):
        probes.observe(Observation(0.1 * number, 1, Probe(64, 0.0, 0.0, 0.002), peer=0))
    assert len(probes.extend_baseline(1e6, suspected=False)) <= BASELINE


def test_probes_outside_the_job_are_ignored() -> None:
    probes = Probes(3, keep_s=10.0, baseline_age_s=5.0)
    for source, target in ((0, 3), (5, 1), (1, 1), (-1, 0), (None, 1)):
        probes.observe(Observation(1.0, target, Probe(1, 0.0, 1.0, 0.5), peer=source))
    assert probes.ratios(0.0) is None


@given(st.sets(st.integers(1, 100), min_size=8, max_size=60), st.floats(1.0, 50.0))
def test_the_mode_is_where_a_third_agrees(others: set[int], wire: float) -> None:
    agreeing = [wire * (1.0 + 1e-9 * number) for number in range(1 + len(others) // 2)]
    assert mode(np.array([*others, *agreeing])) == pytest.approx(wire, rel=1e-6)
