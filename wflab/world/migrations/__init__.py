"""The schema's history, as Alembic revisions; `schema` runs them. The newest one equals `wflab.models`."""
