"""The dashboard of expert placement: imbalance against its bound, and the rollout of expert maps."""

from api.schemas.expert_maps import ExpertMapPhase
from scripts.dashboards.grafana import (
    Colour,
    Dashboard,
    Link,
    Panel,
    Row,
    bars,
    durations,
    lines,
    stat,
    steps,
    timeline,
)
from scripts.dashboards.promql import (
    HERE,
    NAMESPACE,
    choice,
    highest,
    increase,
    meaning,
    one,
    quantile,
    quantiles,
    state,
)

ON_TARGET = f'{HERE}, target=~"$target"'
REPLICAS = "fleetwright_expert_map_replicas"
TARGET_PAGE = Link(title="Target in the console", page="#/targets/${__field.labels.target}")
PHASE_COLOURS = {
    ExpertMapPhase.WANTED: Colour.ODD,
    ExpertMapPhase.WAITING: Colour.CALM,
    ExpertMapPhase.ROLLING: Colour.WARN,
    ExpertMapPhase.LOADED: Colour.GOOD,
    ExpertMapPhase.REFUSED: Colour.BAD,
}


def moe() -> Dashboard:
    return Dashboard(
        uid="fleetwright-moe",
        title="Fleetwright / MoE",
        description="Expert placement: imbalance and its bound, and the rollout of expert maps.",
        variables=[NAMESPACE, choice("target", metric="fleetwright_target_mode")],
        rows=[
            Row("Now", _now()),
            Row("Placements", _placements()),
            Row("Expert maps of running replicas", _maps()),
        ],
    )


def _now() -> list[Panel]:
    return [
        stat(
            "Stale replicas",
            "Replicas whose experts are not placed as their target demands: they wait for the map or refuse it.",
            one(f'sum(max by (target, part, state) ({REPLICAS}{{{ON_TARGET}, state!="loaded"}}))'),
            thresholds={1: Colour.WARN},
            width=8,
        ),
        stat(
            "Replicas with the target map",
            "Replicas whose experts are placed as their target demands.",
            one(f'sum(max by (target, part) ({REPLICAS}{{{ON_TARGET}, state="loaded"}}))'),
            width=8,
        ),
        stat(
            "Imbalance over its bound",
            "Median imbalance of placements in the selected time range over the median bound; 1 cannot be improved.",
            one(f"{_median_of_range('imbalance')} / {_median_of_range('bound')}"),
            thresholds={1.05: Colour.WARN},
            width=8,
        ),
    ]


def _placements() -> list[Panel]:
    return [
        bars(
            "Placements",
            "Created placements, by whether the requested maximum imbalance was reached.",
            increase("fleetwright_placements_total", by="outcome"),
        ),
        lines(
            "Imbalance and lower bound",
            "Highest load of a GPU divided by the mean load, median of placements; none can be below the bound.",
            one(quantile(0.5, "fleetwright_placement_imbalance"), legend="imbalance"),
            one(quantile(0.5, "fleetwright_placement_bound"), legend="bound"),
        ),
        durations(
            "Placement solve time",
            "Solver time of placements, by percentile.",
            *quantiles("fleetwright_placement_solve_seconds"),
        ),
    ]


def _maps() -> list[Panel]:
    return [
        steps(
            "Replicas by state of their map",
            "Loaded: the target placement. Waiting: another placement. Refused: the replica refuses the map.",
            highest(REPLICAS, by="target, part, state", where=ON_TARGET),
            link=TARGET_PAGE,
        ),
        steps(
            "Moves of replicas",
            "Replicas that switched to the target map in the last ten minutes.",
            one(
                f'max by (target, part) (delta({REPLICAS}{{{ON_TARGET}, state="loaded"}}[10m]))',
                legend="{{target}} {{part}}",
            ),
        ),
        timeline(
            "Rollout",
            "Phase of the rollout of each expert map. Waiting: for replicas that receive the map, switch or start.",
            one(
                state("fleetwright_expert_map_phase", "phase", ExpertMapPhase, of="target, part", where=ON_TARGET),
                legend="{{target}} {{part}}",
            ),
            meanings=[meaning(i, phase, PHASE_COLOURS[phase]) for i, phase in enumerate(ExpertMapPhase)],
            link=TARGET_PAGE,
        ),
    ]


def _median_of_range(name: str) -> str:
    buckets = f"fleetwright_placement_{name}_bucket{{{HERE}}}"
    return f"histogram_quantile(0.5, sum by (le) (increase({buckets}[$__range])))"
