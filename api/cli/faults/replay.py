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
from faults.diagnosis import Scope, Verdict
from faults.monitor import WatcherSettings
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
        verdicts, missing = _replayed(recording, source, bundle_out), tuple[Verdict, ...]()
    else:
        bundle = _open_bundle(source)
        verdicts, missing = _proven(bundle, source, bundle_out), _missing(bundle)
        _note_missing(missing, bundle)
    if output is Format.JSON:
        say(json.dumps([*_listed(verdicts, missing, workload=workload)], indent=2))
        return
    _say(verdicts)


def as_json(verdict: Verdict) -> dict[str, Any]:
    """A verdict by the names of the contract, and the switch of a leaf or an uplink."""
    return {
        "class": verdict.fault.value,
        "scope": verdict.scope.value,
        "node": verdict.node,
        "peer": verdict.peer,
        "direction": None if verdict.direction is None else verdict.direction.value,
        "switch": verdict.switch,
        "onset_s": round(verdict.onset_s, DECIMALS),
        "detected_s": round(verdict.detected_s, DECIMALS),
        "isolate": verdict.isolate,
        "confidence": round(verdict.confidence, DECIMALS),
        "reason": verdict.reason,
    }


def _listed(verdicts: tuple[Verdict, ...], missing: tuple[Verdict, ...], *, workload: bool) -> Iterator[dict[str, Any]]:
    """What is shown, and behind it what a bundle should show and does not."""
    for verdict in (*verdicts, *missing):
        if workload or verdict.scope is not Scope.WORKLOAD:
            yield as_json(verdict) | ({"proven": verdict in verdicts} if missing else {})


def _missing(bundle: Bundle) -> tuple[Verdict, ...]:
    """What it was written for and does not show."""
    return tuple(told for told in bundle.told if not proves((told,), bundle.verdicts))


def _note_missing(missing: tuple[Verdict, ...], bundle: Bundle) -> None:
    if missing:
        note(f"this bundle is no proof: {bundle.dropped:,} calls were dropped from it, and it does not show again that")
    for verdict in missing:
        note(f"  {verdict.reason}")


def _replayed(recording: Recording, source: Path, bundle_out: Path | None) -> tuple[Verdict, ...]:
    for kind, count in sorted(recording.malformed.items()):
        note(f"{count:,} malformed and left out: {kind}")
    if not recording.observations:
        note(f"nothing was observed in {source}: {EXPECTED}")
    settings = WatcherSettings()
    if bundle_out is None:
        return replay(recording.job, recording.observations, settings)
    what = acts(recording.observations, judge_s=settings.judge_s)
    _write(bundle_out, write_bundle(recording.job, settings, what, version=version(PACKAGE)))
    return _open_bundle(bundle_out).verdicts


def _proven(bundle: Bundle, source: Path, bundle_out: Path | None) -> tuple[Verdict, ...]:
    """What the bundle says, once it has been made to say it again."""
    if bundle.replayed() != bundle.verdicts:
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
    return bundle.verdicts


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


def _say(verdicts: tuple[Verdict, ...]) -> None:
    if not verdicts:
        say("nothing wrong")
        return
    say_table(Table(COLUMNS, [_row(verdict) for verdict in verdicts]))


def _row(verdict: Verdict) -> tuple[object, ...]:
    return (
        verdict.fault.value,
        verdict.scope.value,
        _where(verdict),
        verdict.onset_s,
        verdict.detected_s,
        "yes" if verdict.isolate else "no",
        verdict.confidence,
        verdict.reason,
    )


def _where(verdict: Verdict) -> str | None:
    if verdict.switch is not None:
        return verdict.switch
    if verdict.node is None:
        return None
    way = "" if verdict.direction is None else f" {verdict.direction.value}"
    if verdict.peer is None:
        return f"{verdict.node}{way}"
    return f"{verdict.node}->{verdict.peer}" if way == " forward" else f"{verdict.node}<->{verdict.peer}"
