"""Reads the query of the audit's list, and shows entries of release 0.1.0 under the names of this release."""

from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, datetime
from typing import Annotated

from fastapi import Query
from pydantic import AwareDatetime, StringConstraints

from api.server.cursors import INT32_MAX
from api.server.problems import invalid
from api.store import AuditFilter

# Names of release 0.1.0.  Hashes cover entries as written, so entries keep them and only readers see new names.
RENAMED_ACTIONS = {
    "fault-verdict.reported": "diagnosis.reported",
    "fault-verdict.withdrawn": "diagnosis.withdrawn",
    "healing.carried-on": "remediation.updated",
    "healing.opened": "remediation.opened",
    "isolation-rules.replaced": "quarantine-rules.replaced",
    "isolation.breaker-wished-closed": "quarantine.breaker-reset-requested",
    "isolation.isolate": "quarantine.quarantine",
    "isolation.keep-out": "quarantine.cordon",
    "isolation.wished": "quarantine.action-requested",
    **{
        f"isolation.{decision}": f"quarantine.{decision}"
        for decision in ("suspect", "clear", "propose", "refuse", "probe", "release", "open-breaker", "close-breaker")
    },
}
RENAMED_SUBJECTS = {"faults/verdicts/": "faults/diagnoses/", "faults/isolation/": "faults/quarantine/"}

Seq = Annotated[int | None, Query(ge=1, le=INT32_MAX)]
ACTOR = StringConstraints(pattern=r"^[!-~]{1,200}$")
ACTION = StringConstraints(pattern=r"^[a-z0-9._-]{1,64}$")
SUBJECT = StringConstraints(pattern=r"^[ -~]{1,200}$")


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """Selects entries of a list."""

    since: Annotated[AwareDatetime | None, Query(alias="from", description="Written at this moment or later.")] = None
    before: Annotated[AwareDatetime | None, Query(alias="to", description="Written before this moment.")] = None
    from_seq: Seq = None
    to_seq: Seq = None
    actor: Annotated[Annotated[str, ACTOR] | None, Query()] = None
    action: Annotated[Annotated[str, ACTION] | None, Query()] = None
    subject: Annotated[Annotated[str, SUBJECT] | None, Query(description="The beginning of the subject.")] = None

    def chosen(self) -> AuditFilter:
        """Return the filter, which selects the entries of release 0.1.0 by their present names too."""
        actions = [self.action] if self.action is not None else []
        actions += [old for old, new in RENAMED_ACTIONS.items() if new == self.action]
        subjects = [self.subject] if self.subject is not None else []
        for old, new in RENAMED_SUBJECTS.items():
            if self.subject is not None and self.subject.startswith(new):
                subjects.append(old + self.subject.removeprefix(new))
            elif self.subject is not None and new.startswith(self.subject):
                subjects.append(old)
        return AuditFilter(
            since=storable("from", self.since),
            before=storable("to", self.before),
            from_seq=self.from_seq,
            to_seq=self.to_seq,
            actor=self.actor,
            actions=actions,
            subjects=subjects,
        )


def storable(name: str, moment: datetime | None) -> datetime | None:
    """Refuse the first and the last year of the calendar: a moment may be outside of it in UTC."""
    if moment is not None and not MINYEAR < moment.year < MAXYEAR:
        raise invalid(f"query.{name}", "allowed: a moment of the years 2 to 9998")
    return moment


def shown_action(action: str) -> str:
    return RENAMED_ACTIONS.get(action, action)


def shown_subject(path: str) -> str:
    for old, new in RENAMED_SUBJECTS.items():
        if path.startswith(old):
            return new + path.removeprefix(old)
    return path
