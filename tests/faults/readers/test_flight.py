"""Flight Recorder dumps give the progress of each rank in each group, from NCCL and gloo, as JSON and pickle."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from faults.observations import FlightProgress, Observation
from faults.readers import read
from faults.readers.flight import Dump, flights, parse_dump
from faults.readers.job_map import JobMap
from faults.readers.parse_errors import MalformedError, ParseErrors
from tests.faults.readers import made

FORMS = {"json": lambda found: json.dumps(found).encode(), "pickle": lambda found: pickle.dumps(found, protocol=2)}
PLACES = JobMap(3, (0, 1, 2), zero_s=made.T_GO_S)


def parsed(found: dict[str, Any], *, form: str = "json", tally: ParseErrors | None = None) -> Dump:
    return parse_dump(FORMS[form](found), tally=tally or ParseErrors())


def recorded(*dumps: dict[str, Any], groups: tuple[tuple[int, ...], ...] = ()) -> list[Observation]:
    by_rank = {rank: parsed(each) for rank, each in enumerate(dumps)}
    return list(flights(by_rank, at_s=9.0, job_map=PLACES, groups=groups, tally=ParseErrors()))


@pytest.mark.parametrize("form", FORMS)
def test_nccl_dumps_give_started_and_finished_operations(form: str) -> None:
    dump = made.dump(
        made.entry(),
        made.waiting(collective_seq_id=2, time_created_ns=int((made.T_GO_S + 3.0) * 1e9)),
        made.waiting(collective_seq_id=3, state="scheduled", time_discovered_started_ns=None),
    )

    (observation,) = flights({1: parsed(dump, form=form)}, at_s=9.0, job_map=PLACES, tally=ParseErrors())

    values = FlightProgress("0", (0, 1, 2), 3, 2, 1, "all_reduce", 3.0, 3.0, "default_pg")
    assert observation == Observation(9.0, 1, values, rank=1)


@pytest.mark.parametrize("form", FORMS)
def test_gloo_dumps_give_only_finished_operations(form: str) -> None:
    dump = made.dump(
        made.gloo(seq=6, retired=True),
        made.gloo(seq=7, retired=True),
        made.gloo(seq=8, retired=False),
        pg_config={"": {"name": "", "desc": "", "ranks": "[]"}},
        pg_status={
            "0": {"last_enqueued_collective": 20, "last_started_collective": -1, "last_completed_collective": 17}
        },
    )

    (observation,) = flights({0: parsed(dump, form=form)}, at_s=9.0, job_map=PLACES, tally=ParseErrors())

    assert observation.values == FlightProgress("0", (0, 1, 2), 8, -1, 7, "all_reduce", 0.0, 0.0, "default_pg")


def test_a_retired_operation_without_an_end_is_not_finished() -> None:
    (observation,) = recorded(made.dump(made.waiting(collective_seq_id=4, retired=True)))

    assert isinstance(observation.values, FlightProgress)
    assert (observation.values.entered, observation.values.finished) == (4, 3)


def test_each_group_counts_separately() -> None:
    other = {"pg_id": 1, "process_group": ["5", "mesh_tp"], "collective_seq_id": 40}
    config = {"5": {"name": "5", "desc": "mesh_tp", "ranks": "[0, 2]"}}

    observations = recorded(made.dump(made.entry(), made.entry(**other), pg_config=config))

    assert [each.values for each in observations] == [
        FlightProgress("0", (0, 1, 2), 1, 1, 1, None, None, 0.0, "default_pg"),
        FlightProgress("5", (0, 2), 40, 40, 40, None, None, 0.0, "mesh_tp"),
    ]


def test_a_group_with_unknown_ranks_is_the_smallest_job_group_that_fits() -> None:
    nameless = {"": {"name": "", "desc": "", "ranks": "[]"}}
    pair = made.gloo(seq=1, retired=True, pg_id=1, process_group=["1", "undefined"])
    observations = recorded(
        made.dump(made.gloo(seq=1, retired=True), pair, pg_config=nameless),
        made.dump(made.gloo(seq=1, retired=True), pair, pg_config=nameless),
        made.dump(made.gloo(seq=1, retired=True), pg_config=nameless),
        groups=((0, 1, 2), (0, 1), (1, 2)),
    )

    assert {
        (each.rank, each.values.group, each.values.ranks)
        for each in observations
        if isinstance(each.values, FlightProgress)
    } == {
        (0, "0", (0, 1, 2)),
        (0, "1", (0, 1)),
        (1, "0", (0, 1, 2)),
        (1, "1", (0, 1)),
        (2, "0", (0, 1, 2)),
    }


def test_unfinished_point_to_point_operations_are_counted_by_pair_and_direction() -> None:
    def passed(name: str, seq: int, *, done: bool) -> dict[str, Any]:
        kind = made.entry if done else made.waiting
        return kind(profiling_name=f"nccl:{name}", p2p_seq_id=seq, is_p2p=True, collective_seq_id=0)

    observations = recorded(
        made.dump(
            passed("send 0->1", 1, done=True),
            passed("recv 0<-2", 2, done=False),
            passed("send 0->1", 3, done=False),
            passed("send 0->1", 4, done=False),
            passed("recv 0<-1", 5, done=True),
            passed("coalesced", 6, done=False),
        )
    )

    assert [(each.values, each.peer) for each in observations] == [
        (FlightProgress("0 0->1", (0, 1), 2, 2, 0, "send 0->1", 0.0, 0.0, "default_pg"), 1),
        (FlightProgress("0 2->0", (2, 0), 1, 1, 0, "recv 0<-2", 0.0, 0.0, "default_pg"), 2),
    ]


def test_the_group_ranks_of_a_pair_are_mapped_to_job_ranks() -> None:
    config = {"9": {"name": "9", "desc": "mesh_pp", "ranks": "[1, 2]"}}
    sends = {"profiling_name": "nccl:send 0->1", "process_group": ["9", "mesh_pp"], "is_p2p": True, "p2p_seq_id": 6}

    (observation,) = flights(
        {1: parsed(made.dump(made.waiting(**sends), pg_config=config))}, at_s=9.0, job_map=PLACES, tally=ParseErrors()
    )

    assert isinstance(observation.values, FlightProgress)
    assert (observation.values.group, observation.values.ranks, observation.peer) == ("9 1->2", (1, 2), 2)


def test_group_ranks_outside_the_job_are_ignored() -> None:
    config = {"5": {"name": "5", "desc": "mesh_tp", "ranks": "[0, 4]"}}

    (observation,) = recorded(made.dump(made.entry(process_group=["5", "mesh_tp"]), pg_config=config), groups=((0, 1),))

    assert isinstance(observation.values, FlightProgress)
    assert observation.values.ranks == (0, 1)


STATUS = {"last_enqueued_collective": "12", "last_started_collective": "12", "last_completed_collective": "11"}


def test_a_group_without_entries_is_read_from_its_counters() -> None:
    (observation,) = recorded(made.dump(pg_status={"7": STATUS}))

    assert observation.values == FlightProgress("0", (0, 1, 2), 12, 12, 11, None, None, description="default_pg")


def test_counters_without_a_name_are_ignored() -> None:
    assert recorded(made.dump(pg_status={"7": STATUS}, pg_config={})) == []


def test_counters_belong_to_the_groups_in_the_order_of_creation() -> None:
    config = {name: {"name": name, "desc": f"mesh_{name}", "ranks": "[0, 2]"} for name in ("42", "9", "110")}
    status = {"3": STATUS, "5": STATUS, "11": STATUS}

    observations = recorded(made.dump(pg_status=status, pg_config=config))

    assert [each.values for each in observations] == [
        FlightProgress(name, (0, 2), 12, 12, 11, None, None, description=f"mesh_{name}") for name in ("9", "42", "110")
    ]


def test_counters_that_contradict_the_order_are_ignored() -> None:
    config = {name: {"name": name, "desc": "", "ranks": "[0, 2]"} for name in ("9", "42")}
    entry = made.entry(pg_id=5, process_group=["9", ""])  # the order would give 42

    observations = recorded(made.dump(entry, pg_status={"3": STATUS, "5": STATUS}, pg_config=config))

    groups = [each.values.group for each in observations if isinstance(each.values, FlightProgress)]
    assert groups == ["9"]


def test_counters_of_a_group_with_point_to_point_operations_are_ignored() -> None:
    """They count both kinds, and each rank has its own number of operations."""
    sends = made.waiting(profiling_name="nccl:send 0->1", is_p2p=True, p2p_seq_id=6)

    observations = recorded(made.dump(sends), made.dump(pg_status={"0": STATUS}))

    assert [(each.rank, each.values.group, each.values.entered) for each in observations] == [  # type: ignore[union-attr]
        (0, "0 0->1", 1)
    ]


@pytest.mark.parametrize(("done", "unfinished"), [(True, 0), (False, 1)])
def test_the_operations_of_a_batch_have_the_state_of_its_own_entry(*, done: bool, unfinished: int) -> None:
    """Flight Recorder never marks the single sends and receives of a batch."""
    batch = {"is_p2p": True, "p2p_seq_id": 3, "collective_seq_id": 0}
    single = made.entry(profiling_name="nccl:send 0->1", **batch) | {
        "state": "scheduled",
        "retired": False,
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
    }
    whole = (made.entry if done else made.waiting)(profiling_name="nccl:coalesced", **batch)

    dump = parsed(made.dump(single, whole))

    assert sum(stream.unfinished for stream in dump.streams if stream.pair == (0, 1)) == unfinished


def test_a_dump_without_an_entries_field_has_no_entries() -> None:
    dump = made.dump()
    del dump["entries"]

    assert parsed(dump).streams == ()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("broken", "defect"),
    [
        (7, "fr: entry is no mapping"),
        (made.entry(process_group=["0"]), "fr: process_group is no pair of name and description"),
        (made.entry(process_group=["0", "x" * 300]), "fr: process_group is no pair of name and description"),
        (made.entry(collective_seq_id=-1), "fr: collective_seq_id is no whole number in range"),
        (made.entry(collective_seq_id=1.5), "fr: collective_seq_id is no whole number in range"),
        (made.entry(pg_id=[]), "fr: pg_id is no whole number in range"),
        (made.entry(is_p2p=1), "fr: is_p2p is no truth value"),
        (made.entry(time_created_ns=None), "fr: time_created_ns is no whole number in range"),
        (made.entry(profiling_name={}), "fr: profiling_name is no short text"),
        (made.entry(time_discovered_started_ns="soon"), "fr: time_discovered_started_ns is no whole number in range"),
    ],
)
def test_a_broken_entry_is_counted_and_the_others_are_kept(form: str, broken: Any, defect: str) -> None:
    tally = ParseErrors()

    found = parsed(made.dump(made.entry(), broken, made.entry(collective_seq_id=2)), form=form, tally=tally)

    assert [(stream.entered, stream.unfinished) for stream in found.streams] == [(2, 0)]
    assert tally.counts() == {defect: 1}


@pytest.mark.parametrize(
    ("content", "defect"),
    [
        (b"", "not JSON"),
        (b"[]", "not a dump"),
        (b"\x80\x02].", "not a dump"),
        (json.dumps(made.dump(version="3.0")).encode(), "dump of an unknown version"),
        (json.dumps(made.dump(entries={})).encode(), "entries is no list"),
        (b"[" * 1_000_000, "not JSON"),
        (b"[" + b"[]," * 3_000_000, "too many values"),
        (b" " * (33 << 20), "too large"),
    ],
)
def test_content_that_is_no_dump_is_refused(content: bytes, defect: str) -> None:
    with pytest.raises(MalformedError, match=f"^{defect}$"):
        parse_dump(content, tally=ParseErrors())


def test_a_hostile_dump_in_a_recording_is_counted_and_the_rest_is_read() -> None:
    files = made.folder()
    files["fr_rank1.pickle"] = b"\x80\x02cposix\nsystem\nX\x04\x00\x00\x00true\x85R."
    files["fr_rank0.json"] = json.dumps(made.dump(made.entry())).encode()

    recording = read(files)

    assert recording.malformed == {"fr: pickle that is more than data": 1}
    assert [
        observation.rank for observation in recording.observations if isinstance(observation.values, FlightProgress)
    ] == [0]


def test_a_dump_is_observed_at_the_time_of_its_request() -> None:
    def at_s(**run: Any) -> float:
        files = {"run.json": made.run(**run), "fr_rank0.json": json.dumps(made.dump(made.entry())).encode()}
        (observation,) = read(files).observations
        return observation.at_s

    assert at_s() == made.STEPS * made.STEP_S - 1.5  # the default of the schema
    assert at_s(dumped=made.T_GO_S + 4.0) == 4.0
    assert at_s(dur=None) == pytest.approx(2e-6, abs=1e-6)  # the time of the last event in it


def test_a_dump_far_from_the_job_time_is_counted_and_ignored() -> None:
    late = made.run(t_go=made.T_GO_S - 900 * 86_400.0)
    recording = read({"run.json": late, "fr_rank0.json": json.dumps(made.dump(made.entry())).encode()})
    assert recording.observations == ()
    assert recording.malformed == {"fr: time is far from the job's": 1}


@pytest.mark.skipif(not (made.PUBLIC / "hang_fr_multigroup").is_dir(), reason="the public recordings are not present")
def test_the_public_dumps_of_three_groups_show_the_rank_behind() -> None:
    folder = made.PUBLIC / "hang_fr_multigroup"
    recording = read({path.name: path.read_bytes() for path in folder.iterdir()})

    found = [
        observation.values for observation in recording.observations if isinstance(observation.values, FlightProgress)
    ]
    assert recording.malformed == {}
    assert len(found) == 8
    in_all = {
        observation.rank: observation.values
        for observation in recording.observations
        if isinstance(observation.values, FlightProgress) and observation.values.group == "0"
    }
    assert [in_all[rank].entered for rank in range(4)] == [8, 8, 7, 8]
    assert {each.ranks for each in found} == {(0, 1, 2, 3), (0, 1), (2, 3)}


@pytest.mark.skipif(not (made.PUBLIC / "hang_sigstop").is_dir(), reason="the public recordings are not present")
def test_a_public_pickle_equals_its_json() -> None:
    def progress_of(name: str) -> list[FlightProgress]:
        folder = Path(made.PUBLIC / "hang_sigstop")
        recording = read({each: (folder / each).read_bytes() for each in ("run.json", name)})
        return [
            observation.values
            for observation in recording.observations
            if isinstance(observation.values, FlightProgress)
        ]

    assert progress_of("fr_rank0.pickle") == progress_of("fr_rank0.json")
