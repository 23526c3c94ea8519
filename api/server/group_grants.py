"""Joins what the groups of a caller grant, for every source of identities."""

from collections.abc import Collection, Mapping

from api.schemas.tokens import TokenScope
from api.server.settings import GroupGrant


def joined_grant(groups: Collection[str], grants: Mapping[str, GroupGrant], project: str | None) -> GroupGrant:
    """Join the grants for one project: the chosen one, else the whole fleet, else that of the first group."""
    held = [grant for group, grant in grants.items() if group in groups]
    wanted = [project, None, held[0].project if held else None]
    owner = next((each for each in wanted if any(grant.project == each for grant in held)), None)
    scopes = frozenset[TokenScope]().union(*(grant.scopes for grant in held if grant.project == owner))
    return GroupGrant(scopes=scopes, project=owner)
