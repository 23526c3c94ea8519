"""Assesses a placement as a request describes it.  Importing this module loads compiled code: import it late."""

from fleet.documents import RuleError
from fleet.models import ModelArchitecture
from placement.drift.assessment import Terms, assess
from placement.drift_request import Assessment, DriftRequest, DriftTerms
from placement.migration import Levels, Window
from placement.problem import Pace


def assess_request(request: DriftRequest, model: ModelArchitecture | None) -> Assessment:
    """Assess the placement of a request; `model` is that of the placement, if known."""
    return assess(request.placement, request.expert_loads(), terms=terms_of(request, model))


def terms_of(given: DriftTerms, model: ModelArchitecture | None) -> Terms:
    high = given.act_above if given.act_above is not None else max(given.max_imbalance, given.settle_at or 1.0)
    low = given.settle_at if given.settle_at is not None else min(given.max_imbalance, high)
    return Terms(
        levels=Levels(high, low),
        window=Window(window_s=given.window_s, moe_share=given.moe_share, slowdown=given.slowdown),
        pace=_pace(given, model),
        under_way=given.under_way,
    )


def _pace(given: DriftTerms, model: ModelArchitecture | None) -> Pace | None:
    if given.move_gb_per_s is None:
        if given.node_gb_per_s is not None:
            raise RuleError([(("node_gb_per_s",), "needs `move_gb_per_s`")])
        return None
    expert_bytes = given.expert_bytes or (model.expert_parameters if model is not None else None)
    if not expert_bytes:
        message = "needs `expert_bytes`, because the placement names no known model"
        raise RuleError([(("move_gb_per_s",), message)])
    return Pace(expert_bytes=expert_bytes, move_gb_per_s=given.move_gb_per_s, node_gb_per_s=given.node_gb_per_s)
