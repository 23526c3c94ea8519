"""PostgreSQL refuses text that is longer than its column; SQLite stores it.  Every value of a fixed set must fit."""

from collections.abc import Iterable
from importlib import import_module
from pkgutil import walk_packages

import pytest
from sqlalchemy import String

import api.server
from api.jobs.results import KINDS
from api.schemas.tokens import TokenScope
from api.server.catalogues import Catalogue
from api.server.collections import Collection
from api.server.versioned import DocumentKey
from api.store.tables import DiagnosisRow, DocumentRow, ResultRow, TokenRow
from faults.diagnosis import FaultClass, Scope

MODULES = [import_module(found.name) for found in walk_packages(api.server.__path__, "api.server.")]
DOCUMENT_KINDS = {
    value.kind
    for module in MODULES
    for value in vars(module).values()
    if isinstance(value, Catalogue | Collection | DocumentKey)
}


@pytest.mark.parametrize(
    ("column", "values"),
    [
        pytest.param(DiagnosisRow.__table__.c.fault, FaultClass, id="class of a diagnosis"),
        pytest.param(DiagnosisRow.__table__.c.scope, Scope, id="scope of a diagnosis"),
        pytest.param(ResultRow.__table__.c.kind, [kind.type.name for kind in KINDS], id="kind of a result"),
        pytest.param(DocumentRow.__table__.c.kind, DOCUMENT_KINDS, id="kind of a document"),
        pytest.param(TokenRow.__table__.c.scopes, [" ".join(TokenScope)], id="scopes of a token"),
    ],
)
def test_every_value_fits_its_column(column: object, values: Iterable[str]) -> None:
    kind = getattr(column, "type", None)
    assert isinstance(kind, String)
    assert kind.length is not None
    assert {value: len(value) for value in values if len(value) > kind.length} == {}
