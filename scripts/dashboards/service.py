"""The service itself: its objectives, its requests, and the processes of API and workers."""

from scripts.dashboards.grafana import Colour, Panel, Unit, bars, durations, lines, steps
from scripts.dashboards.promql import HERE, highest, increase, one, quantile, quantiles

BUDGETS = {"availability": 0.001, "read-latency": 0.01, "write-latency": 0.01, "safety-jobs": 0.01}  # as the alerts
FAST_BURN = 14.4
INSTANCE = f"and on (namespace, instance) fleetwright_build_info{{{HERE}}}"


def objectives() -> list[Panel]:
    return [
        lines(
            "Burn rate",
            "Share of the last hour that missed an objective, over the allowed share; at 1 the budget lasts 30 days.",
            *(one(_burn("1h", name), legend=name) for name in BUDGETS),
            thresholds={FAST_BURN: Colour.BAD},
            width=12,
        ),
        lines(
            "Missed objectives",
            "Share of requests and jobs of the last three days that missed their objective.",
            *(one(_errors("3d", name), legend=name) for name in BUDGETS),
            unit=Unit.SHARE,
            width=12,
        ),
    ]


def api() -> list[Panel]:
    return [
        lines(
            "Requests",
            "Requests per second, by method and route.",
            one(
                f"sum by (method, route) (rate(fleetwright_http_requests_total{{{HERE}}}[$__rate_interval]))",
                legend="{{method}} {{route}}",
            ),
            unit=Unit.PER_SECOND,
            width=8,
        ),
        durations(
            "Request duration",
            "By percentile; without plans, events and health probes.",
            *quantiles(
                "fleetwright_http_request_duration_seconds",
                where=f'{HERE}, route!~"/v1/plans|/v1/.*events|/livez|/readyz|/metrics"',
            ),
            width=8,
        ),
        bars(
            "Errors",
            "4xx: client error; 5xx: server error.",
            one(
                "sum by (status, route) (rate("
                f'fleetwright_http_requests_total{{{HERE}, status=~"[45].."}}[$__rate_interval]))',
                legend="{{status}} {{route}}",
            ),
            unit=Unit.PER_SECOND,
            width=8,
        ),
        steps(
            "Audit entries",
            "Number of entries; it never decreases.",
            one(f"max(fleetwright_audit_entries{{{HERE}}})", legend="entries"),
            width=8,
        ),
        bars(
            "Refused requests",
            "By the kind of the problem, such as no valid token; and connections that the server closed.",
            increase("fleetwright_refused_requests_total", by="reason"),
            increase("fleetwright_http_refused_connections_total", by="reason"),
            width=8,
        ),
        steps(
            "Versions",
            "API replicas and workers, by version; two versions during an upgrade.",
            one(f"count by (version) (fleetwright_build_info{{{HERE}}})", legend="{{version}}"),
            width=8,
        ),
    ]


def processes() -> list[Panel]:
    return [
        lines(
            "Memory",
            "Resident memory of each process.",
            one(f"process_resident_memory_bytes{{{HERE}}} {INSTANCE}", legend="{{instance}}"),
            unit=Unit.BYTES,
            width=6,
        ),
        lines(
            "Processor time",
            "Cores in use by each process, without its jobs.",
            one(f"rate(process_cpu_seconds_total{{{HERE}}}[$__rate_interval]) {INSTANCE}", legend="{{instance}}"),
            width=6,
        ),
        lines(
            "Open files",
            "Open files and connections of each process; dashed: the limit.",
            one(f"process_open_fds{{{HERE}}} {INSTANCE}", legend="{{instance}}"),
            one(f"process_max_fds{{{HERE}}} {INSTANCE}", legend="{{instance}} limit", dashed=True),
            width=6,
        ),
        durations(
            "Event loop delay",
            "How late a process runs what is due, 99 %; every request waits as long.",
            one(quantile(0.99, "fleetwright_event_loop_delay_seconds", by="instance"), legend="{{instance}}"),
            width=6,
        ),
        lines(
            "Database connections",
            "Connections in use by each process; dashed: the most that its pool opens.",
            highest("fleetwright_database_connections_in_use", by="instance"),
            highest("fleetwright_database_connections_limit", by="instance", legend="{{instance}} limit", dashed=True),
            width=6,
        ),
        durations(
            "Wait for a connection",
            "Time that a transaction waited for a connection of the pool, by percentile.",
            *quantiles("fleetwright_database_connection_wait_seconds"),
            width=6,
        ),
        durations(
            "Wait for other writers",
            "Time that a writing transaction waited for those of its process, and for the lock of the audit, 95 %.",
            one(quantile(0.95, "fleetwright_database_lock_wait_seconds", by="lock"), legend="{{lock}}"),
            width=6,
        ),
        bars(
            "Database failures",
            "Failed transactions, by cause.",
            one(
                f"sum by (failure) (increase(fleetwright_database_failures_total{{{HERE}}}[$__rate_interval]))",
                legend="{{failure}}",
            ),
            width=6,
        ),
        bars(
            "Removed rows",
            "Rows that retention removed, by kind.",
            increase("fleetwright_gc_removed_total", by="kind"),
            width=12,
        ),
        bars(
            "Removals of old rows",
            "Runs of retention, by outcome.",
            increase("fleetwright_gc_runs_total", by="outcome"),
            width=12,
        ),
    ]


def _errors(window: str, objective: str) -> str:
    return f'namespace:fleetwright_slo_errors:ratio_rate{window}{{{HERE}, slo="{objective}"}}'


def _burn(window: str, objective: str) -> str:
    return f"{_errors(window, objective)} / {BUDGETS[objective]:g}"
