"""Published diagnoses: each new fault, also after a withdrawn one, and each improvement."""

from deploy.fault_monitor.outputs import Change, DiagnosisChanges
from faults.diagnosis import Diagnosis, Direction, FaultClass, Scope
from faults.monitor.dedup import KEPT, FaultDedup

FIRST = Diagnosis(
    fault=FaultClass.COMM_HANG,
    scope=Scope.LINK,
    node=1,
    peer=2,
    onset_s=1.0,
    detected_s=2.0,
    isolate=False,
    confidence=0.5,
    reason="because",
)
NODE = FIRST.model_copy(update={"scope": Scope.NODE, "peer": None})


def published(*evaluations: tuple[Diagnosis, ...], same_fault_s: float = 10.0) -> list[tuple[Scope, Change, bool]]:
    """Evaluations a quarter of a second apart, after the deduplication of a monitor."""
    dedup, changes = FaultDedup(same_fault_s), DiagnosisChanges()
    lines = [
        item for at, active in enumerate(evaluations) for item in changes.of(dedup.update(active, now_s=2.0 + at / 4))
    ]
    return [(item.diagnosis.scope, item.change, item.isolates) for item in lines]


def changed(diagnosis: Diagnosis, **changes: object) -> Diagnosis:
    return diagnosis.model_copy(update=changes)


def test_an_unchanged_fault_is_published_once() -> None:
    assert published(*[(NODE,)] * 9) == [(Scope.NODE, Change.NEW, False)]


def test_a_node_diagnosis_that_replaces_a_link_diagnosis_is_published() -> None:
    assert published((FIRST,), (NODE,)) == [(Scope.LINK, Change.NEW, False), (Scope.NODE, Change.NEW, False)]


def test_a_later_isolation_is_published_and_counted_once() -> None:
    lines = published((NODE,), *[(changed(NODE, isolate=True),)] * 3)
    assert lines == [(Scope.NODE, Change.NEW, False), (Scope.NODE, Change.UPDATED, True)]


def test_an_improved_location_or_direction_is_published() -> None:
    way = changed(FIRST, direction=Direction.FORWARD, confidence=0.6)
    assert published((FIRST,), (way,)) == [(Scope.LINK, Change.NEW, False), (Scope.LINK, Change.UPDATED, False)]
    rank = changed(NODE, scope=Scope.RANK)
    assert published((rank,), (changed(NODE, confidence=0.6),)) == [
        (Scope.RANK, Change.NEW, False),
        (Scope.NODE, Change.UPDATED, False),
    ]


def test_confidence_is_published_each_time_the_uncertainty_halves() -> None:
    grows = [(changed(NODE, confidence=share / 100),) for share in range(50, 100)]
    assert len(published(*grows)) == 6  # 0.50, 0.75, 0.88, 0.94, 0.97, 0.99
    assert len(published((changed(NODE, confidence=1.0),), (changed(NODE, confidence=1.0),))) == 1


def test_the_same_fault_much_later_is_new() -> None:
    assert published((NODE,), (), (changed(NODE, detected_s=2.5),), same_fault_s=0.3)[-1] == (
        Scope.NODE,
        Change.NEW,
        False,
    )


def test_more_faults_than_a_monitor_keeps_are_all_published_in_bounded_memory() -> None:
    dedup, changes, lines = FaultDedup(10.0), DiagnosisChanges(max_kept=100), 0
    for at in range(2 * KEPT):
        diagnosis = changed(NODE, node=at, detected_s=float(at))
        lines += len(list(changes.of(dedup.update([diagnosis], now_s=float(at)))))
    assert lines == 2 * KEPT
    assert len(changes._published) == 100
