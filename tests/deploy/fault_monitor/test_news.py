"""What is told of faults: each when it is new, also after another was withdrawn, and again when it gets better."""

from deploy.fault_monitor.diagnosis_changes import Change, DiagnosisChanges
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


def told(*turns: tuple[Diagnosis, ...], same_fault_s: float = 10.0) -> list[tuple[Scope, Change, bool]]:
    """Judgements a quarter of a second apart, through the memory of a watcher."""
    seen, news = FaultDedup(same_fault_s), DiagnosisChanges()
    lines = [item for at, turn in enumerate(turns) for item in news.of(seen.say(turn, now_s=2.0 + at / 4))]
    return [(item.diagnosis.scope, item.said, item.isolates) for item in lines]


def but(diagnosis: Diagnosis, **changes: object) -> Diagnosis:
    return diagnosis.model_copy(update=changes)


def test_what_stays_the_same_is_told_once() -> None:
    assert told(*[(NODE,)] * 9) == [(Scope.NODE, Change.NEW, False)]


def test_a_node_that_takes_the_place_of_its_link_is_told() -> None:
    assert told((FIRST,), (NODE,)) == [(Scope.LINK, Change.NEW, False), (Scope.NODE, Change.NEW, False)]


def test_an_isolation_that_comes_later_is_told_and_counted_once() -> None:
    lines = told((NODE,), *[(but(NODE, isolate=True),)] * 3)
    assert lines == [(Scope.NODE, Change.NEW, False), (Scope.NODE, Change.AGAIN, True)]


def test_a_better_place_or_direction_is_told() -> None:
    way = but(FIRST, direction=Direction.FORWARD, confidence=0.6)
    assert told((FIRST,), (way,)) == [(Scope.LINK, Change.NEW, False), (Scope.LINK, Change.AGAIN, False)]
    rank = but(NODE, scope=Scope.RANK)
    assert told((rank,), (but(NODE, confidence=0.6),)) == [
        (Scope.RANK, Change.NEW, False),
        (Scope.NODE, Change.AGAIN, False),
    ]


def test_confidence_is_told_each_time_the_doubt_halves() -> None:
    grows = [(but(NODE, confidence=share / 100),) for share in range(50, 100)]
    assert len(told(*grows)) == 6  # 0.50, 0.75, 0.88, 0.94, 0.97, 0.99
    assert len(told((but(NODE, confidence=1.0),), (but(NODE, confidence=1.0),))) == 1


def test_the_same_fault_much_later_is_new() -> None:
    assert told((NODE,), (), (but(NODE, detected_s=2.5),), same_fault_s=0.3)[-1] == (Scope.NODE, Change.NEW, False)


def test_more_faults_than_a_watcher_remembers_are_all_told_and_memory_stays_bounded() -> None:
    seen, news, lines = FaultDedup(10.0), DiagnosisChanges(most=100), 0
    for at in range(2 * KEPT):
        diagnosis = but(NODE, node=at, detected_s=float(at))
        lines += len(list(news.of(seen.say([diagnosis], now_s=float(at)))))
    assert lines == 2 * KEPT
    assert len(news._told) == 100
