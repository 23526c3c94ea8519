"""`fleetwright power simulate`: simulate a row of servers under a power budget and a policy."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.common.errors import InputError
from api.cli.common.files import name_of, option_errors, read_file, read_text, require_writable
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import ExplicitRemoteOptions, RemoteOptions
from api.cli.common.plot_files import PlotOption, require_plottable
from api.cli.common.progress import record_of
from api.cli.common.result_options import NamingOptions
from api.cli.power.simulate_output import print_row
from fleet.gpus import builtin_gpus
from power.measured_models.document import PowerShares
from power.server_model import ServerModel
from power.whatif.request import FaultName, PolicyName, RowRequest
from power.workload import Sources, read_sources

app = new_app()


@app.command()
def simulate(
    service: ExplicitRemoteOptions,
    naming: NamingOptions,
    servers: Annotated[int, typer.Option(metavar="N", help="Of the row, those that train included.")],
    more: Annotated[list[Path] | None, typer.Argument(metavar="[FILE...]", help="More files of --trace.")] = None,
    budget_servers: Annotated[
        int,
        typer.Option(metavar="N", help="The budget is that of so many servers: at their peak they draw 79 % of it."),
    ] = 40,
    policy: Annotated[
        PolicyName, typer.Option(help="The policy that keeps the row within its budget.")
    ] = PolicyName.LADDER,
    days: Annotated[
        float, typer.Option(metavar="D", help="Simulated days; run_s reports the time that a run takes.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(metavar="S", help="Seed of all random numbers.")] = 0,
    trace: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Requests to repeat instead of the built-in mix; several share the row."),
    ] = None,
    training_share: Annotated[float, typer.Option(metavar="F", help="Of the servers that train, 0 to 1.")] = 0.0,
    fault: Annotated[FaultName | None, typer.Option(help="What goes wrong, from the worst minute on.")] = None,
    fault_s: Annotated[
        float | None,
        typer.Option(
            "--fault-s", metavar="SECONDS", help="How long: else a planner stays dead, a meter is stale for 10."
        ),
    ] = None,
    guard: Annotated[
        bool | None,
        typer.Option(
            "--guard/--no-guard", help="Around the policy; else around the ladder, and where there is a fault."
        ),
    ] = None,
    budget_w: Annotated[
        float | None, typer.Option("--budget-w", metavar="W", help="The budget outright, in place of --budget-servers.")
    ] = None,
    peak_share: Annotated[
        float | None, typer.Option(metavar="X", help="In place of 0.79: the uncapped peak over the budget.")
    ] = None,
    load: Annotated[
        float | None, typer.Option(metavar="X", help="Busy share of the servers at the peak of the day.")
    ] = None,
    decode_sensitivity: Annotated[
        float | None, typer.Option(metavar="K", help="Slowdown of decoding by clock; 0.05 to 0.25 have been published.")
    ] = None,
    together: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Requests on a server at once, in every run; else 1 (ladder: as many as fit in memory), traces 32.",
        ),
    ] = None,
    server: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A server's watts and times, in place of the built-in one's.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --model: a server as fitted curves have it.")
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="The measured engine on it.")] = None,
    curves: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Curves that `power fit` wrote, in place of the shipped ones.")
    ] = None,
    plot: PlotOption = None,
) -> None:
    """Simulate a row of servers behind a budget, and count its brakes.

    The row runs twice, uncapped and under the policy, with the same requests; slo is the latency of the second run over
    that of the first, minus 1.  The same request gives the same result.  Traces are CSV files of Azure, Mooncake,
    BurstGPT or plain time, input_tokens, output_tokens.
    """
    stored_as = naming.of(service.url)
    if service.url is not None and plot is not None:
        raise InputError("--plot: needs a local simulation, without --url")
    if plot is not None:
        require_plottable(plot)
        require_writable(plot)
    if more and not trace:
        raise InputError("files after the options are traces: put --trace before them")
    request = request_from(
        servers=servers,
        budget_servers=budget_servers,
        policy=policy,
        days=days,
        seed=seed,
        training_share=training_share,
        fault=fault,
        fault_s=fault_s,
        load=load,
        guard=guard,
        budget_w=budget_w,
        peak_share=peak_share,
        decode_sensitivity=decode_sensitivity,
        together=together,
        server=given_server(server, curves, gpu=gpu, model=model, together=together),
    )
    sources = given_sources((*(trace or ()), *(more or ())))
    if service.url is not None:
        _simulate_remotely(request, sources, service, stored_as)
        return
    from power.whatif.run import run_whatif  # noqa: PLC0415 - loads compiled code: wrong input is refused before

    with option_errors():
        found = run_whatif(request, clock_s=time.process_time, sources=sources)
    if plot is not None:
        from api.cli.power.plot import plot_row  # noqa: PLC0415 - draws

        plot_row(found.response, found.record, plot)
    if not service.printed(found.response):
        print_row(found.response)


def _simulate_remotely(
    request: RowRequest, sources: Sources, service: RemoteOptions, stored_as: Mapping[str, Any]
) -> None:
    from api.cli.power.stored import POWER_SIMULATIONS  # noqa: PLC0415 - loads compiled code
    from api.schemas.power import SimulationRequest  # noqa: PLC0415 - as above

    with option_errors():
        request = SimulationRequest.of(request, sources)
    with service.connect() as client:
        record = record_of(
            client, client.submit_power_simulation(request, **stored_as), read=client.get_power_simulation
        )
    POWER_SIMULATIONS.print_record(record, service)


def request_from(**fields: Any) -> RowRequest:
    """Return the validated request; options without a value keep their defaults."""
    with option_errors():
        return RowRequest(**{name: value for name, value in fields.items() if value is not None})


def given_sources(paths: Sequence[Path]) -> Sources:
    """Read the work of the row: traces of requests, and at most one file of rates that shapes the day."""
    with option_errors():
        return read_sources([(path.name or name_of(path), read_text(path)) for path in paths])


def given_server(
    server: Path | None, curves: Path | None, *, gpu: str | None, model: str | None, together: int | None
) -> ServerModel | None:
    """Return the server model from a file or from fitted curves; None selects the built-in model."""
    if server is not None:
        if curves is not None or gpu is not None or model is not None:
            message = "--server describes a server outright, --gpu, --model and --curves by fitted curves: give one"
            raise InputError(message)
        return read_file(server, ServerModel)
    if curves is None and gpu is None and model is None:
        return None
    if gpu is None or model is None:
        raise InputError("--gpu and --model are required together")
    from power.measured_models import builtin_curves  # noqa: PLC0415 - large, and rarely needed
    from power.measured_models.servers import server_model  # noqa: PLC0415 - as above

    fitted = builtin_curves() if curves is None else read_file(curves, PowerShares)
    with option_errors():
        return server_model(fitted, builtin_gpus().get(gpu), model=model, together=together or 1)
