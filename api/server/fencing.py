"""Refuses reports of a controller that has lost its lease.

A report names the term of its lease in the header `Fleetwright-Lease`.  The service accepts the report only while the
stored lease has this term.  A controller of release 0.2.0 sends no term.  Its report is accepted while nobody holds the
lease, or while the token that claimed the lease last is the token of the report.
"""

from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Header

from api.schemas.leases import LEASE_HEADER, LEASE_TERM_PATTERN, LeaseTerm
from api.server.problems import ProblemError, invalid
from api.store import Transaction


async def lease_term(
    header: Annotated[
        str | None,
        Header(
            alias=LEASE_HEADER,
            pattern=LEASE_TERM_PATTERN,
            description="Lease and term under which the caller acts, such as `controller/7`.",
        ),
    ] = None,
) -> LeaseTerm | None:
    return LeaseTerm.parse(header) if header is not None else None


HeldTerm = Annotated[LeaseTerm | None, Depends(lease_term)]


async def refuse_stale(tx: Transaction, *, lease: str, held: LeaseTerm | None, actor: str) -> None:
    """Raise 409 unless the caller may report under this lease.  The transaction holds the audit lock until its end.

    A change of the holder takes the same lock, so that no report of the old holder is stored after the change.
    """
    if held is not None and held.lease != lease:
        raise invalid(f"header.{LEASE_HEADER}", f"expected a term of the lease {lease!r}, got {str(held)!r}")
    await tx.audit.lock()
    stored = await tx.leases.get(lease)
    term = stored.term if stored is not None else 0
    if held is not None and held.term != term:
        raise _stale(f"term {held.term} of lease {lease!r} is over; the stored term is {term}")
    if stored is not None and stored.actor not in (None, actor):
        raise _stale(f"lease {lease!r} is held by {stored.holder} with another token than that of this report")


def _stale(detail: str) -> ProblemError:
    return ProblemError(
        status=HTTPStatus.CONFLICT, kind="stale-lease", detail=f"{detail}; nothing was changed", headers={}
    )
