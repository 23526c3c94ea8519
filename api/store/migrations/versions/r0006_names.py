"""One table of stored results; diagnoses, quarantine and remediation under their new names."""

from api.store.migrations.faults_0006 import downgrade_faults, upgrade_faults
from api.store.migrations.results_0006 import downgrade_results, upgrade_results

revision = "r0006"
down_revision: str | None = "r0005"


def upgrade() -> None:
    upgrade_results()
    upgrade_faults()


def downgrade() -> None:
    downgrade_faults()
    downgrade_results()
