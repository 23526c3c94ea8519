"""A placement as the file that an engine loads."""

from placement.document import Placement
from placement.formats.engine_writers import Engine, EnginePlacement, write_for


def export_placement(placement: Placement, engine: Engine) -> str:
    """The file's text.  RuleError where the engine cannot load such a placement."""
    return write_for(
        engine,
        EnginePlacement.of(
            placement.expert_of_slot,
            layout=placement.layout,
            experts=placement.experts,
            layers=placement.layers,
            hidden_layers=placement.hidden_layers,
            model=placement.model,
        ),
    )
