"""The cost of a request before it runs, so that a service can reject one that would block it.

requests <= time * servers * load * sum over kinds of  share / mean service       at the peak of the day all day long
"""

from power.server_model import ServerModel
from power.whatif.request import DAY_S, RowRequest
from power.workload import POLCA_MIX, Sources
from power.workload.generated import PEAK_UTILIZATION
from power.workload.trace_replay import UTILIZATION, content_s

MIN_SERVICE_S = 1e-9


def expected_requests(request: RowRequest, sources: Sources) -> float:
    """Return an upper bound of the requests of the row and of the row that its budget comes from."""
    model = request.changed(sources.model(request.server))
    usual = UTILIZATION if sources.traces else PEAK_UTILIZATION
    load = usual if request.load is None else request.load
    servers = request.servers * (1 - request.training_share)
    if request.budget_w is None:
        servers += request.budget_servers
    return request.days * DAY_S * load * servers * _rate_of_a_server(model, sources)


def _rate_of_a_server(model: ServerModel, sources: Sources) -> float:
    """Return the requests per second of a server that is never idle."""
    if sources.traces:
        each = [(1 / len(sources.traces), float(content_s(one.trace, model).mean())) for one in sources.traces]
    else:
        each = [(kind.share, kind.mean_service_s(model)) for kind in POLCA_MIX.kinds]
    return sum(share / max(service_s, MIN_SERVICE_S) for share, service_s in each)
