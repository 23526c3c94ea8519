"""`fleetwright faults replay`: compute the diagnoses of a recording, or check a bundle."""

import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.common.console import note, print_line
from api.cli.common.errors import EXIT_NEGATIVE, CommandError, InputError
from api.cli.common.files import require_writable, write_whole
from api.cli.common.lazy_groups import new_app
from api.cli.common.output import Format, FormatOption
from api.cli.common.tables import Column, number, print_table, table_of
from api.cli.faults.recordings import EXPECTED, open_recording
from api.cli.faults.wait_page import wait_page
from faults.bundle import Bundle, proves, read_bundle, write_bundle
from faults.detector import Job
from faults.diagnosis import Diagnosis, Scope
from faults.monitor import MonitorSettings
from faults.observations import Observation
from faults.readers import Recording
from faults.replay import calls, replay
from fleet.documents import RuleError, dotted

DECIMALS = 3  # of seconds; agents sample a few times per second
PACKAGE = "fleetwright"


def _where(diagnosis: Diagnosis) -> str | None:
    if diagnosis.switch is not None:
        return diagnosis.switch
    if diagnosis.node is None:
        return None
    way = "" if diagnosis.direction is None else f" {diagnosis.direction.value}"
    if diagnosis.peer is None:
        return f"{diagnosis.node}{way}"
    return f"{diagnosis.node}->{diagnosis.peer}" if way == " forward" else f"{diagnosis.node}<->{diagnosis.peer}"


COLUMNS = (
    Column("class", of="fault"),
    Column("scope", of="scope"),
    Column("rank", of=lambda each: None if each.rank is None else str(each.rank)),
    Column("where", of=_where),
    number("onset s", decimals=2, of="onset_s"),
    number("detected s", decimals=2, of="detected_s"),
    Column("isolate", of=lambda each: "yes" if each.isolate else "no"),
    number("confidence", decimals=2, of="confidence"),
    Column("reason", of="reason"),
)

app = new_app()


@app.command("replay")
def replay_command(
    source: Annotated[
        Path,
        typer.Argument(metavar="DIR|BUNDLE", help="A recording's folder, the dumps of a stopped job, or a bundle."),
    ],
    bundle_out: Annotated[
        Path | None, typer.Option("--bundle-out", metavar="FILE", help="Also write a bundle, for an exact replay.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write a page: which rank waits for which.")
    ] = None,
    workload: Annotated[
        bool, typer.Option("--workload", help="With --format json: also findings of the workload.")
    ] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Diagnose a recorded or stopped job, or check a bundle.

    A folder without run.json can hold what a stopped job left: Flight Recorder dumps under any name that ends in the
    rank, output of NCCL RAS in JSON or text, files of NCCL Inspector, and kernel logs with Xid lines.  Other files are
    ignored.

    Times are seconds after the recording's t_go, or after the first call in the dumps.  A bundle is replayed with its
    own settings; if it does not give its diagnoses again, bit for bit, the exit code is 1.  If calls were dropped
    before the bundle was written, live diagnoses can be missing in it: these are listed on stderr, and the JSON has
    "proven".
    """
    for path in (bundle_out, html):
        if path is not None:
            require_writable(path)
    if source.exists() and not (source.is_dir() or source.is_file()):
        raise InputError(f"{source}: is neither a folder nor a file")
    if source.is_dir() or not source.exists():
        recording = open_recording(source)
        diagnoses, missing = _replayed(recording, source, bundle_out), tuple[Diagnosis, ...]()
    else:
        bundle = _open_bundle(source)
        diagnoses, missing = _checked(bundle, source, bundle_out), _missing(bundle)
        _note_missing(missing, bundle)
        observations = (call for call in bundle.calls if isinstance(call, Observation))
        recording = Recording(bundle.job, t_go_s=0.0, observations=tuple(observations), malformed={})
    for each in recording.notes:
        note(each)
    if html is not None:
        write_whole(html, wait_page(recording, diagnoses, name=source.resolve().name).encode())
    if output is Format.JSON:
        listed = _listed(diagnoses, missing, recording=recording, workload=workload)
        print_line(json.dumps([*listed], indent=2))
        return
    _print(tuple(with_rank(each, recording.job) for each in diagnoses))


def with_rank(diagnosis: Diagnosis, job: Job) -> Diagnosis:
    """Add the rank of a node that has only one."""
    if diagnosis.rank is not None or diagnosis.node is None:
        return diagnosis
    return diagnosis.model_copy(update={"rank": job.only_rank_on(diagnosis.node)})


def as_json(diagnosis: Diagnosis, recording: Recording) -> dict[str, Any]:
    """Convert a diagnosis to JSON; times and confidence are rounded."""
    diagnosis = with_rank(diagnosis, recording.job)
    return {
        "class": diagnosis.fault.value,
        "scope": diagnosis.scope.value,
        "rank": diagnosis.rank,
        "node": diagnosis.node,
        "host": recording.host_of(diagnosis.rank),
        "peer": diagnosis.peer,
        "direction": None if diagnosis.direction is None else diagnosis.direction.value,
        "switch": diagnosis.switch,
        "onset_s": round(diagnosis.onset_s, DECIMALS),
        "detected_s": round(diagnosis.detected_s, DECIMALS),
        "isolate": diagnosis.isolate,
        "confidence": round(diagnosis.confidence, DECIMALS),
        "reason": diagnosis.reason,
    }


def _listed(
    diagnoses: tuple[Diagnosis, ...], missing: tuple[Diagnosis, ...], *, recording: Recording, workload: bool
) -> Iterator[dict[str, Any]]:
    """Return the diagnoses, followed by the missing ones of a bundle."""
    for diagnosis in (*diagnoses, *missing):
        if workload or diagnosis.scope is not Scope.WORKLOAD:
            yield as_json(diagnosis, recording) | ({"proven": diagnosis in diagnoses} if missing else {})


def _missing(bundle: Bundle) -> tuple[Diagnosis, ...]:
    """Return the live diagnoses that a replay of the bundle does not reproduce."""
    return tuple(live for live in bundle.live if not proves((live,), bundle.diagnoses))


def _note_missing(missing: tuple[Diagnosis, ...], bundle: Bundle) -> None:
    if missing:
        note(f"unproven bundle: {bundle.dropped:,} calls were dropped; the replay does not give these diagnoses:")
    for diagnosis in missing:
        note(f"  {diagnosis.reason}")


def _replayed(recording: Recording, source: Path, bundle_out: Path | None) -> tuple[Diagnosis, ...]:
    for kind, count in sorted(recording.malformed.items()):
        note(f"{count:,} malformed and skipped: {kind}")
    if not recording.observations:
        note(f"no observations in {source}: {EXPECTED}")
    settings = MonitorSettings()
    if bundle_out is None:
        return replay(recording.job, recording.observations, settings)
    recorded_calls = calls(recording.observations, period_s=settings.judge_s)
    _write(bundle_out, write_bundle(recording.job, settings, recorded_calls, version=version(PACKAGE)))
    return _open_bundle(bundle_out).diagnoses


def _checked(bundle: Bundle, source: Path, bundle_out: Path | None) -> tuple[Diagnosis, ...]:
    """Replay the bundle and return its diagnoses; fail unless both agree."""
    if bundle.replayed() != bundle.diagnoses:
        raise CommandError(
            f"{source}: written by version {bundle.version}; this version ({version(PACKAGE)}) gives other diagnoses "
            "for the same observations",
            exit_code=EXIT_NEGATIVE,
        )
    if bundle_out is not None:
        _write(
            bundle_out,
            write_bundle(
                bundle.job,
                bundle.settings,
                bundle.calls,
                version=version(PACKAGE),
                dropped=bundle.dropped,
                live=bundle.live,
            ),
        )
    return bundle.diagnoses


def _open_bundle(path: Path) -> Bundle:
    try:
        with path.open("rb") as stream:
            return read_bundle(iter(lambda: stream.readline((1 << 20) + 2), b""))
    except RuleError as error:
        place, message = error.violations[0]
        raise InputError(f"{path}: {dotted(place)}: {message}") from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or 'cannot be read'}") from error


def _write(path: Path, lines: Iterator[str]) -> None:
    write_whole(path, "".join(lines).encode("ascii"))


def _print(diagnoses: tuple[Diagnosis, ...]) -> None:
    if not diagnoses:
        print_line("no faults")
        return
    print_table(table_of(COLUMNS, diagnoses))
