from api.cli.common.console import print_line
from api.cli.common.tables import Column, Table, number, print_table
from faults.simulator import Score
from faults.simulator.answer import KindScore

COLUMNS = (
    Column("fault"),
    number("number"),
    Column("recall", show=lambda value: f"{value:.1%}", right=True),
    Column("95 % interval", right=True),
    number("late"),
    number("hidden"),
    Column("right direction", show=lambda value: f"{value:.1%}", right=True),
)


def print_score(found: Score) -> None:
    """Print a heading, a row per kind of fault, and the main results."""
    print_line(f"{found.ranks:,} ranks for {found.hours:g} h, scenario {found.scenario}, seed {found.seed}")
    print_line("")
    if found.by_kind:
        print_table(Table(COLUMNS, [_row(name, kind) for name, kind in found.by_kind.items()]))
        print_line("")
    for line in _remarks(found):
        print_line(f"- {line}")


def _row(name: str, kind: KindScore) -> tuple[object, ...]:
    return name, kind.faults, kind.recall, _interval(kind.recall_interval), kind.late, kind.hidden, kind.right_direction


def _remarks(found: Score) -> list[str]:
    recall, precision = _rate(found.recall, found.recall_interval), _rate(found.precision, found.precision_interval)
    per_week = f"{found.false_isolations_per_week_upper95:,.1f} a week"
    lines = [
        f"recall {recall} of {found.faults:,} faults; precision {precision} of {found.verdicts:,} diagnoses",
        f"{found.false_isolations:,} false isolations in {found.hours:,.4g} h: at most {per_week} with 95 % confidence",
    ]
    if found.hidden_faults:
        visible = _rate(found.recall_visible, found.recall_visible_interval)
        lines.append(
            f"{found.hidden_faults:,} faults were hidden by the loss of the only agent that could report them; "
            f"recall of the others {visible}"
        )
    lines += [
        f"{name}: detected after {times.p50:.1f} s (p95 {times.p95:.1f}, maximum {times.max:.1f})"
        for name, times in found.ttd_s.items()
    ]
    if found.congestion_verdicts or found.workload_verdicts:
        lines.append(
            f"{found.congestion_verdicts:,} diagnoses of congestion by other jobs, "
            f"{found.workload_verdicts:,} of the workload"
        )
    lines.append(
        f"an evaluation takes {1000 * found.compute_s_per_window:.1f} ms of CPU time per {found.window_s:g} s "
        f"(maximum {1000 * found.compute_s_per_window_max:.0f}); simulated in {found.run_s:.1f} s"
    )
    return lines


def _rate(value: float | None, interval: tuple[float, float] | None) -> str:
    return "-" if value is None else f"{value:.2%} ({_interval(interval)})"


def _interval(interval: tuple[float, float] | None) -> str | None:
    return None if interval is None else f"{interval[0]:.1%} to {interval[1]:.1%}"
