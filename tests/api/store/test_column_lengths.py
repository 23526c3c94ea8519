"""PostgreSQL refuses text that is longer than its column; SQLite stores it.  Every value of a fixed set must fit."""

from collections.abc import Iterable
from typing import Any

import pytest
from sqlalchemy import String

from api.schemas.tokens import Scope as TokenScope
from api.server.catalogues import ALL
from api.server.collections import Collection
from api.server.power_trees import BUDGETS, TREES
from api.server.quarantine import RULES
from api.server.routes.remediation import CASES
from api.server.stored_results import KINDS
from api.server.targets import FREEZE, TARGETS
from api.store.tables import DiagnosisRow, DocumentRow, ResultRow, TokenRow
from faults.diagnosis import FaultClass, Scope

COLLECTIONS: tuple[Collection[Any, Any], ...] = (BUDGETS, CASES, TARGETS, TREES)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        pytest.param(DiagnosisRow.__table__.c.fault, FaultClass, id="class of a diagnosis"),
        pytest.param(DiagnosisRow.__table__.c.scope, Scope, id="scope of a diagnosis"),
        pytest.param(ResultRow.__table__.c.kind, [kind.type.name for kind in KINDS], id="kind of a result"),
        pytest.param(
            DocumentRow.__table__.c.kind,
            [*(each.kind for each in ALL), *(each.kind for each in COLLECTIONS), FREEZE.kind, RULES.kind],
            id="kind of a document",
        ),
        pytest.param(TokenRow.__table__.c.scopes, [" ".join(TokenScope)], id="scopes of a token"),
    ],
)
def test_every_value_fits_its_column(column: object, values: Iterable[str]) -> None:
    kind = getattr(column, "type", None)
    assert isinstance(kind, String)
    assert kind.length is not None
    assert {value: len(value) for value in values if len(value) > kind.length} == {}
