"""`fleetwright faults replay`: a recorded job through the watcher, or a bundle through the watcher that wrote it."""

import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.common.console import note, say
from api.cli.common.errors import EXIT_BAD_INPUT, EXIT_REFUSED, CommandError
from api.cli.common.lazy_groups import new_app
from api.cli.common.output import Format, FormatOption
from api.cli.common.tables import Column, Table, number, say_table
from api.cli.faults.recordings import EXPECTED, open_recording
from api.cli.place.files import refuse_unwritable, write_whole
from faults.bundle import Bundle, proves, read_bundle, write_bundle
from faults.diagnosis import Diagnosis, Scope
from faults.monitor import MonitorSettings
from faults.readers import Recording
from faults.replay import acts, replay
from fleet.documents import RuleError, dotted

DECIMALS = 3  # of seconds: agents look some times a second
PACKAGE = "fleetwright"

COLUMNS = (
    Column("class"),
    Column("scope"),
    Column("where"),
    number("onset s", decimals=2),
    number("detected s", decimals=2),
    Column("isolate"),
    number("confidence", decimals=2),
    Column("reason"),
)

app = new_app()


@app.command("replay")
def replay_command(
    source: Annotated[Path, typer.Argument(metavar="DIR|BUNDLE", help="A recording's folder, or a bundle.")],
    bundle_out: Annotated[
        Path | None, typer.Option("--bundle-out", metavar="FILE", help="Also write what it takes to say it again.")
    ] = None,
    workload: Annotated[
        bool, typer.Option("--workload", help="With --format json: also what is the workload's and not hardware's.")
    ] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Say what was wrong in a recorded job, as live.

    Times are seconds after the recording's t_go.  A bundle is replayed with the settings it holds; where it does not
    give the verdicts it says, bit for bit, the exit code is 1.  A bundle that was written too late to hold all that its
    watcher heard may not show what was said live: what is missing is told on stderr, and "proven" is added to the JSON.
    """
    if bundle_out is not None:
        refuse_unwritable(bundle_out)
    if source.exists() and not (source.is_dir() or source.is_file()):
        raise CommandError(f"{source}: is neither a folder nor a file", exit_code=EXIT_BAD_INPUT)
    if source.is_dir() or not source.exists():
        recording = open_recording(source)
        diagnoses, missing = _replayed(recording, source, bundle_out), tuple[Diagnosis, ...]()
    else:
        bundle = _open_bundle(source)
        diagnoses, missing = _proven(bundle, source, bundle_out), _missing(bundle)
        _note_missing(missing, bundle)
    if output is Format.JSON:
        say(json.dumps([*_listed(diagnoses, missing, workload=workload)], indent=2))
        return
    _say(diagnoses)


def as_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """A verdict by the names of the contract, and the switch of a leaf or an uplink."""
    return {
        "class": diagnosis.fault.value,
        "scope": diagnosis.scope.value,
        "node": diagnosis.node,
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
    diagnoses: tuple[Diagnosis, ...], missing: tuple[Diagnosis, ...], *, workload: bool
) -> Iterator[dict[str, Any]]:
    """What is shown, and behind it what a bundle should show and does not."""
    for diagnosis in (*diagnoses, *missing):
        if workload or diagnosis.scope is not Scope.WORKLOAD:
            yield as_json(diagnosis) | ({"proven": diagnosis in diagnoses} if missing else {})


def _missing(bundle: Bundle) -> tuple[Diagnosis, ...]:
    """What it was written for and does not show."""
    return tuple(told for told in bundle.told if not proves((told,), bundle.diagnoses))


def _note_missing(missing: tuple[Diagnosis, ...], bundle: Bundle) -> None:
    if missing:
        note(f"this bundle is no proof: {bundle.dropped:,} calls were dropped from it, and it does not show again that")
    for diagnosis in missing:
        note(f"  {diagnosis.reason}")


def _replayed(recording: Recording, source: Path, bundle_out: Path | None) -> tuple[Diagnosis, ...]:
    for kind, count in sorted(recording.malformed.items()):
        note(f"{count:,} malformed and left out: {kind}")
    if not recording.observations:
        note(f"nothing was observed in {source}: {EXPECTED}")
    settings = MonitorSettings()
    if bundle_out is None:
        return replay(recording.job, recording.observations, settings)
    what = acts(recording.observations, judge_s=settings.judge_s)
    _write(bundle_out, write_bundle(recording.job, settings, what, version=version(PACKAGE)))
    return _open_bundle(bundle_out).diagnoses


def _proven(bundle: Bundle, source: Path, bundle_out: Path | None) -> tuple[Diagnosis, ...]:
    """What the bundle says, once it has been made to say it again."""
    if bundle.replayed() != bundle.diagnoses:
        raise CommandError(
            f"{source}: written by version {bundle.version}, this one ({version(PACKAGE)}) says otherwise of the same "
            "observations",
            exit_code=EXIT_REFUSED,
        )
    if bundle_out is not None:
        _write(
            bundle_out,
            write_bundle(
                bundle.job,
                bundle.settings,
                bundle.acts,
                version=version(PACKAGE),
                dropped=bundle.dropped,
                told=bundle.told,
            ),
        )
    return bundle.diagnoses


def _open_bundle(path: Path) -> Bundle:
    try:
        with path.open("rb") as stream:
            return read_bundle(iter(lambda: stream.readline((1 << 20) + 2), b""))
    except RuleError as error:
        place, message = error.violations[0]
        raise CommandError(f"{path}: {dotted(place)}: {message}", exit_code=EXIT_BAD_INPUT) from error
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or 'cannot be read'}", exit_code=EXIT_BAD_INPUT) from error


def _write(path: Path, lines: Iterator[str]) -> None:
    write_whole(path, "".join(lines).encode("ascii"))


def _say(diagnoses: tuple[Diagnosis, ...]) -> None:
    if not diagnoses:
        say("nothing wrong")
        return
    say_table(Table(COLUMNS, [_row(diagnosis) for diagnosis in diagnoses]))


def _row(diagnosis: Diagnosis) -> tuple[object, ...]:
    return (
        diagnosis.fault.value,
        diagnosis.scope.value,
        _where(diagnosis),
        diagnosis.onset_s,
        diagnosis.detected_s,
        "yes" if diagnosis.isolate else "no",
        diagnosis.confidence,
        diagnosis.reason,
    )


def _where(diagnosis: Diagnosis) -> str | None:
    if diagnosis.switch is not None:
        return diagnosis.switch
    if diagnosis.node is None:
        return None
    way = "" if diagnosis.direction is None else f" {diagnosis.direction.value}"
    if diagnosis.peer is None:
        return f"{diagnosis.node}{way}"
    return f"{diagnosis.node}->{diagnosis.peer}" if way == " forward" else f"{diagnosis.node}<->{diagnosis.peer}"
