"""The stores in databases beside the vault: answers of models, and posts that wait for their month."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import sqlalchemy as sa

from pipelines.collect.refresh_store import RefreshStore
from pipelines.core.config.settings import Settings
from pipelines.store import answers
from pipelines.store.vault.engine import Engine, chunks, database_file
from pipelines.takedown.stores import Case, Store


class Answers(Store):
    """Sealed answers of labellers, and batches that providers still work on."""

    name = "answers"
    holds = "content"
    erased = "rows are deleted, the record is removed from pending batches, the file is rewritten"
    settings = ("answers_url",)

    def count(self, case: Case) -> Mapping[str, int]:
        """Count the answers about deleted records, and their places in pending batches."""
        with _answers(case.settings) as engine:
            if engine is None:
                return {"rows": 0}
            with engine.reading() as connection:
                rows = sum(
                    connection.scalar(sa.select(sa.func.count()).where(answers.answers.c.record_id.in_(ids))) or 0
                    for ids in chunks(case.gone.ids)
                )
                jobs = connection.scalars(sa.select(answers.batches.c.records)).all()
            asked = (record for job in jobs for record in json.loads(job).values())
            return {"rows": rows + sum(record in case.gone.ids for record in asked)}

    def erase(self, case: Case) -> None:
        """Delete the rows; a provider's later answer about a record that left its batch is discarded unread."""
        with _answers(case.settings) as engine:
            if engine is None:
                return
            with engine.writing() as connection:
                for ids in chunks(case.gone.ids):
                    connection.execute(sa.delete(answers.answers).where(answers.answers.c.record_id.in_(ids)))
                for row in connection.execute(sa.select(answers.batches)).all():
                    kept = {k: record for k, record in json.loads(row.records).items() if record not in case.gone.ids}
                    where = answers.batches.c.id == row.id
                    connection.execute(sa.update(answers.batches).where(where).values(records=json.dumps(kept)))
            engine.rewrite(answers.answers.name, answers.batches.name)


@contextmanager
def _answers(settings: Settings) -> Iterator[Engine | None]:
    """Open the database of answers; ``None`` if it or its tables do not exist."""
    file = database_file(settings.answers_url)
    if file and not file.exists():
        yield None
        return
    engine = Engine(
        settings.answers_url,
        where="CORPUS_ANSWERS_URL",
        lock=answers.WRITER_LOCK,
        unavailable=answers.AnswersUnavailable,
        pragmas=("secure_delete = ON", "temp_store = MEMORY"),
    )
    try:
        with engine.translated():
            made = sa.inspect(engine.sql).has_table(answers.answers.name)
        yield engine if made else None
    finally:
        engine.close()


class Refresh(Store):
    """What was seen of listings: posts that wait for their month, and ids of published ones."""

    name = "refresh"
    holds = "content"
    erased = "rows of posts that wait for their month, and ids of published ones, are deleted, the file is rewritten"
    settings = ("refresh_url",)

    def count(self, case: Case) -> Mapping[str, int]:
        """Count the rows of deleted records."""
        with RefreshStore.existing(case.settings.refresh_url) as store:
            return {"rows": store.count(case.gone.ids) if store else 0}

    def erase(self, case: Case) -> None:
        """Delete the rows of deleted records."""
        with RefreshStore.existing(case.settings.refresh_url) as store:
            if store:
                store.remove(case.gone.ids)
