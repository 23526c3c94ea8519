"""Runs Alembic's migrations on the connection of `api.store.migrate`, inside its transaction."""

from alembic import context

from api.store.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    transactional_ddl=True,  # SQLite connections begin explicitly, so DDL rolls back there too
)
with context.begin_transaction():
    context.run_migrations()
