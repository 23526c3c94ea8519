"""`fleetwright jobs list|show|watch|cancel`."""

from typing import Annotated

import typer

from api.cli.common.console import print_line
from api.cli.common.errors import EXIT_NEGATIVE
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import MostOption, ProjectOptions
from api.cli.common.progress import description, follow
from api.cli.common.tables import Column, moment
from api.schemas.jobs import Job, JobState

app = new_app()
JobArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the job, or of the result that it makes.")]
COLUMNS = (
    Column("id", of="id"),
    moment("created", of="created_at"),
    Column("by", of="created_by"),
    Column("kind", of="kind"),
    Column("lane", of="lane.value"),
    Column("state", of="state.value"),
    Column("progress", of=lambda job: _progress(job)),  # noqa: PLW0108 - defined below
)


@app.command("list")
def list_jobs(
    service: ProjectOptions,
    most: MostOption = 20,
    state: Annotated[JobState | None, typer.Option("--state", help="Only jobs in this state.")] = None,
    kind: Annotated[str | None, typer.Option("--kind", metavar="KIND", help="Only jobs of this kind.")] = None,
) -> None:
    """List the newest jobs."""
    service.print_items(COLUMNS, lambda client: client.iter_jobs(state=state, kind=kind), most=most)


@app.command()
def show(job_id: JobArgument, service: ProjectOptions) -> None:
    """Show one job."""
    with service.connect() as client:
        job = client.get_job(job_id)
    _print(job, service)


@app.command()
def watch(job_id: JobArgument, service: ProjectOptions) -> None:
    """Wait for the end of a job, with its progress; exit code 1 when it has no result."""
    with service.connect() as client:
        job = follow(client, client.get_job(job_id))
    _print(job, service)
    if job.state is not JobState.SUCCEEDED:
        raise typer.Exit(EXIT_NEGATIVE)


@app.command()
def cancel(job_id: JobArgument, service: ProjectOptions) -> None:
    """Cancel a job that waits or runs."""
    with service.connect() as client:
        job = client.cancel_job(job_id)
    _print(job, service)


def _print(job: Job, service: ProjectOptions) -> None:
    if service.printed(job):
        return
    print_line(f"{job.kind} {job.id}: {description(job)}")
    for name, value in (
        ("lane", job.lane.value),
        ("created", f"{job.created_at:%Y-%m-%d %H:%M:%S} by {job.created_by}"),
        ("attempts", job.attempts),
        ("cpu", f"{job.cpu_s:.2f} s" if job.cpu_s is not None else None),
        ("result", job.result),
        ("problem", job.problem.detail if job.problem is not None else None),
    ):
        if value is not None:
            print_line(f"  {name:<9}{value}")


def _progress(job: Job) -> str:
    if job.state is JobState.QUEUED:
        return f"behind {job.position}" if job.position else "next"
    if job.state in (JobState.RUNNING, JobState.WAITING):
        return (job.phase or "") + (f" {job.share:.0%}" if job.share is not None else "")
    return ""
