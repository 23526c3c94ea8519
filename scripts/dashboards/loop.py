"""The loop dashboard: what planning loops observe, forecast and decide, and why they hold."""

from api.schemas.planning_loops import LoopPhase
from scripts.dashboards.grafana import (
    Colour,
    Dashboard,
    Panel,
    Row,
    Unit,
    bars,
    durations,
    lines,
    stat,
    steps,
    timeline,
)
from scripts.dashboards.promql import HERE, NAMESPACE, choice, highest, increase, meaning, one, quantiles, state

ON_LOOP = f'{HERE}, planning_loop=~"$planning_loop"'
PHASE_COLOURS = {
    LoopPhase.WARMING_UP: Colour.CALM,
    LoopPhase.STEADY: Colour.GOOD,
    LoopPhase.OBSERVED: Colour.ODD,
    LoopPhase.RECOMMENDED: Colour.ODD,
    LoopPhase.APPLIED: Colour.GOOD,
    LoopPhase.HOLDING: Colour.WARN,
    LoopPhase.FROZEN: Colour.OFF,
    LoopPhase.FAILED: Colour.BAD,
}


def loop() -> Dashboard:
    return Dashboard(
        uid="fleetwright-loop",
        title="Fleetwright / Loop",
        description="Continuous planning: observed and forecast demand, decisions, and the reasons to hold.",
        variables=[NAMESPACE, choice("planning_loop", metric="fleetwright_planning_loop_status_age_seconds")],
        rows=[
            Row("Now", _now()),
            Row("Demand and decisions", _decisions()),
            Row("Predictions", _predictions()),
            Row("Windows", _windows()),
        ],
    )


def _now() -> list[Panel]:
    held = f'max by (planning_loop) (fleetwright_planning_loop_phase{{{ON_LOOP}, phase=~"holding|failed"}}) == 1'
    return [
        stat(
            "Loops that hold",
            "Loops whose demand is not usable, or for which no plan was found; their last decision stays.",
            one(f"count({held}) or vector(0)"),
            thresholds={1: Colour.WARN},
            width=6,
        ),
        stat(
            "Problems of the demand now",
            "Reasons why the demand of the last window is not usable, of all loops.",
            one(f"sum(max by (planning_loop) (fleetwright_planning_loop_problems{{{ON_LOOP}}}))"),
            thresholds={1: Colour.WARN},
            width=6,
        ),
        stat(
            "Oldest decision",
            "Time since the last report, of the loop where this is highest.",
            one(f"max(fleetwright_planning_loop_status_age_seconds{{{ON_LOOP}}})"),
            unit=Unit.SECONDS,
            thresholds={3600: Colour.BAD},
            width=6,
        ),
        stat(
            "Demand over forecast",
            "Arrivals over the planned quantile, of the workload where this is highest; above 1 the plan is too small.",
            one(
                f"max(fleetwright_planning_loop_arrivals_rps{{{ON_LOOP}}}"
                f" / fleetwright_planning_loop_forecast_rps{{{ON_LOOP}}})"
            ),
            unit=Unit.SHARE,
            thresholds={1: Colour.WARN},
            width=6,
        ),
    ]


def _decisions() -> list[Panel]:
    return [
        timeline(
            "Phase of planning loops",
            "What each loop did in its last window; holding: the demand is not usable, so the last decision stays.",
            one(
                state("fleetwright_planning_loop_phase", "phase", LoopPhase, of="planning_loop", where=ON_LOOP),
                legend="{{planning_loop}}",
            ),
            meanings=[meaning(position, phase, PHASE_COLOURS[phase]) for position, phase in enumerate(LoopPhase)],
        ),
        lines(
            "Arrivals and forecast",
            "Requests per second. Dashed: the quantile over the warm-up time, which is planned for.",
            highest(
                "fleetwright_planning_loop_forecast_rps",
                where=ON_LOOP,
                by="planning_loop, workload",
                legend="{{planning_loop}} {{workload}} forecast",
                dashed=True,
            ),
            highest(
                "fleetwright_planning_loop_arrivals_rps",
                where=ON_LOOP,
                by="planning_loop, workload",
                legend="{{planning_loop}} {{workload}} arrivals",
            ),
        ),
        steps(
            "Wanted replicas",
            "Replicas of the last decision of each loop, also where its mode does not set the plan.",
            highest("fleetwright_planning_loop_wanted_replicas", by="planning_loop, target, gpu", where=ON_LOOP),
        ),
        steps(
            "Problems of the demand",
            "Reasons why the demand of the last window is not usable; the status of the loop lists them.",
            highest("fleetwright_planning_loop_problems", by="planning_loop", where=ON_LOOP),
            width=24,
        ),
    ]


def _predictions() -> list[Panel]:
    return [
        lines(
            "Observed over predicted latency",
            "Time to first token (ttft) and per output token (tpot); 1: as predicted.",
            highest("fleetwright_planning_loop_drift_ratio", by="planning_loop, gpu, kind", where=ON_LOOP),
            width=12,
        ),
        steps(
            "Measurements to repeat",
            "1: the observed latency is outside the interval of the prediction.",
            highest("fleetwright_planning_loop_needs_refit", by="planning_loop, gpu", where=ON_LOOP),
            width=12,
        ),
    ]


def _windows() -> list[Panel]:
    return [
        durations(
            "Age of the status of planning loops",
            "Time since the last report on each loop.",
            highest("fleetwright_planning_loop_status_age_seconds", by="planning_loop", where=ON_LOOP),
        ),
        bars(
            "Windows",
            "Windows that the leader decided, by the phase after them.",
            increase("fleetwright_planning_windows_total", by="phase"),
        ),
        durations(
            "Time to decide a window",
            "From reading the demand to the report, by percentile.",
            *quantiles("fleetwright_planning_window_duration_seconds"),
        ),
    ]
