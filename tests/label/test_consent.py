"""No item reaches a provider without a complete, current consent; a server on this machine needs none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pydantic import ValidationError

from pipelines.annotate.rounds import opening
from pipelines.cli import stages
from pipelines.collect.read.confined_engine import open_engine
from pipelines.core.config.collect import Ocr
from pipelines.core.config.label import Consent, ProviderNotConsented, on_this_machine
from pipelines.core.config.params import Params, load, overlay, read_params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import UseNotApproved
from pipelines.core.taxonomy import load as scheme
from pipelines.label.rationales import Explainer
from pipelines.label.remote import Decoding, Remote
from pipelines.llm.prompts import build
from pipelines.registry.packaging import register
from pipelines.release import answer_bundles, package
from pipelines.release.export import model_folder
from pipelines.store import tables
from pipelines.store.approvals import require, sources_of
from pipelines.store.stage import Context
from pipelines.store.vault.vault import Vault
from pipelines.workspace.parameters import merge
from tests.json_server import QuietHandler, serving
from tests.label.small_vendor import SECRET, opened, posts
from tests.refusals import refused

ROOT = Path(__file__).resolve().parents[2]
TODAY = datetime.now(UTC).date()
COMPLETE: dict[str, Any] = {
    "terms": "data processing agreement of 2026-03-02",
    "retention_days": 0,
    "approved_by": "the data protection officer",
    "approved_on": TODAY - timedelta(days=30),
    "expires": TODAY + timedelta(days=30),
}
BROKEN = {
    "none": {},
    **{f"no_{name}": {**COMPLETE, name: None} for name in COMPLETE},
    "ended": {**COMPLETE, "expires": TODAY},
    "not_begun": {**COMPLETE, "approved_on": TODAY + timedelta(days=1)},
}


@contextmanager
def listener() -> Iterator[tuple[str, list[bytes]]]:
    """Yield an address that is not loopback, though it is this machine, and what arrives there."""
    arrived: list[bytes] = []

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            arrived.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(401)
            self.end_headers()

        def handle(self) -> None:
            arrived.append(b"connected")
            super().handle()

    with serving(Handler) as address:
        yield f"{address.replace('127.0.0.1', '0.0.0.0')}/v1", arrived


def params(consent: dict[str, Any], *, batch: bool = False) -> Params:
    values = load(ROOT)
    votes = values.votes.model_copy(update={"budget_usd": 100.0, "batch": batch})
    consents = {**values.consents, "openai": Consent(**consent)}
    return values.model_copy(update={"votes": votes, "consents": consents})


@contextmanager
def labeller(
    kind: type[Remote], url: str, *, folder: Path, given: Params, decoding: Decoding | None = None
) -> Iterator[tuple[Remote, Vault]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORPUS_HOME", str(folder))
        patch.setenv("CORPUS_SECRET", SECRET.hex())
        patch.setenv("CORPUS_OPENAI_URL", url)
        patch.setenv("CORPUS_OPENAI_KEY", "k")
        settings, cradle = Settings.from_env(), scheme("cradle")
        with opened(folder) as (vault, answers):
            prompt = build(cradle, keys=["labels"], system="commercial")
            made = {"prompt": prompt, "scheme": cradle, "answers": answers, "vault": vault, "decoding": decoding}
            yield kind.of("gpt", params=given, settings=settings, sources=given.sources, **made), vault


@pytest.mark.parametrize(("kind", "run"), [(Remote, None), (Remote, 1), (Explainer, None)])
@pytest.mark.parametrize("consent", BROKEN.values(), ids=BROKEN)
def test_nothing_is_sent_without_consent(
    kind: type[Remote], run: int | None, consent: dict[str, Any], tmp_path: Path
) -> None:
    given = {"given": params(consent), "decoding": Decoding(run=run)}
    with listener() as (url, arrived), labeller(kind, url, folder=tmp_path, **given) as (asked, vault):
        with pytest.raises(ProviderNotConsented, match="may be sent to provider 'openai'"):
            asked.label(posts(3, vault=vault))
        assert arrived == []
        assert asked._answers.spent() == (0, 0)


NAME = "crisis-posts"


def without(use: str, *, source: str = "dump") -> Params:
    values = load(ROOT)
    entry = values.sources[source]
    kept = tuple(other for other in entry.uses if other != use)
    return values.model_copy(update={"sources": {**values.sources, source: entry.model_copy(update={"uses": kept})}})


def test_nothing_is_sent_of_a_source_whose_approval_does_not_cover_it(tmp_path: Path) -> None:
    given = params(COMPLETE).model_copy(update={"sources": without("ask_providers").sources})
    with listener() as (url, arrived), labeller(Remote, url, folder=tmp_path, given=given) as (asked, vault):
        with pytest.raises(UseNotApproved, match=r"sources\.dump\.uses"):
            asked.label(posts(3, vault=vault))
        assert arrived == []


def test_records_keep_the_approval_of_a_source_that_the_corpus_no_longer_reads(tmp_path: Path) -> None:
    given, month = without("train", source="reddit"), tmp_path / "data/posts/2022-11/records.parquet"
    require("train", sources_of("posts", params=given, root=tmp_path), today=TODAY)
    month.parent.mkdir(parents=True)
    schema = tables.SCHEMAS["records"]
    row = {field.name: "reddit" for field in schema if pa.types.is_string(field.type)}
    pq.write_table(pa.Table.from_pylist([row], schema=schema), month)
    for use in ("train", "register"):
        with refused("UseNotApproved") if use == "train" else nullcontext():
            require(use, sources_of("posts", params=given, root=tmp_path), today=TODAY)


def _annotate(given: Params, root: Path) -> None:
    opening.permit("posts", params=given, root=root, now=datetime.now(UTC))


def _register(given: Params, root: Path) -> None:
    register.put(NAME, root, context=SimpleNamespace(params=given, root=root), who="a", why="b")


def _release(given: Params, root: Path) -> None:
    now = datetime.now(UTC)
    asked: Any = {
        "terms": given.release,
        "settings": SimpleNamespace(contact="a@b.example"),
        "vault": None,
        "name": "x",
    }
    package.run("posts", **asked, params=given, now=now, root=root)


def _export(given: Params, root: Path) -> None:
    context: Any = SimpleNamespace(params=given, root=root)
    model_folder.run(NAME, 1, repo="team/model", to=root / "out", context=context)


def _export_answers(given: Params, root: Path) -> None:
    answer_bundles.export(Context("posts", given, Settings.from_env(), lambda: None, root, "gpt"), to=root / "out")


def _train(given: Params, root: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        context: Any = Context("posts", given, Settings.from_env(), lambda: None, root)
        patch.setattr(stages, "context", lambda *_, **__: nullcontext(context))
        stages.run_stage("train", "posts", row="any")


@pytest.mark.parametrize("ended", [False, True], ids=["not-covered", "ended"])
@pytest.mark.parametrize(
    ("use", "call"),
    [
        ("annotate", _annotate),
        ("train", _train),
        ("register", _register),
        ("release", _release),
        ("export", _export),
        ("export", _export_answers),
    ],
)
def test_a_use_that_the_approval_does_not_cover_is_refused(use: str, call: Any, ended: bool, tmp_path: Path) -> None:
    given = without(use)
    if ended:
        entry = load(ROOT).sources["dump"].model_copy(update={"expires": TODAY})
        given = given.model_copy(update={"sources": {**given.sources, "dump": entry}})
    with refused("UseNotApproved", match=f"{use}.*{'ended' if ended else 'does not name'}"):
        call(given, tmp_path)


def test_a_batch_is_not_handed_over_without_consent(tmp_path: Path) -> None:
    given = params({}, batch=True)
    with listener() as (url, arrived), labeller(Remote, url, folder=tmp_path, given=given) as (asked, vault):
        with pytest.raises(ProviderNotConsented):
            asked.hand_over(posts(3, vault=vault))
        assert arrived == []


@pytest.mark.parametrize(("consent", "host"), [(COMPLETE, "0.0.0.0"), ({}, "127.0.0.1")], ids=["consent", "local"])
def test_with_consent_or_to_this_machine_posts_are_sent(consent: dict[str, Any], host: str, tmp_path: Path) -> None:
    with (
        listener() as (url, arrived),
        labeller(Remote, url.replace("0.0.0.0", host), folder=tmp_path, given=params(consent)) as (asked, vault),
    ):
        with pytest.raises(Exception, match="cannot be used"):
            asked.label(posts(1, vault=vault))
        assert any(b"A long week" in data for data in arrived)


HERE = ["http://127.0.0.1:8000/v1", "http://[::1]:8000", "http://localhost:8000"]
NAMES = [f"http://{host}" for host in ("127.0.0.1@example.org/v1", "127.0.0.1.example.org", "localhost.example.org")]
OTHERS = ["https://api.openai.com/v1", "http://0.0.0.0:8000", "http://10.0.0.1:8000", "http://[::ffff:10.0.0.1]"]


def test_only_loopback_is_this_machine() -> None:
    assert [url for url in (*HERE, *NAMES, *OTHERS, "127.0.0.1:8000", None, "") if on_this_machine(url)] == HERE


def test_pictures_do_not_go_to_google_vision_without_consent() -> None:
    given = Ocr(**{**load(ROOT).images.ocr.model_dump(), "engine": "google_vision"})
    for consent in (None, *(Consent(**broken) for broken in BROKEN.values())):
        with pytest.raises(ProviderNotConsented, match="google_vision"):
            open_engine(given, consent=consent)


def test_words_without_content_are_no_consent() -> None:
    for name in ("terms", "approved_by"):
        with pytest.raises(ValidationError):
            Consent(**{**COMPLETE, name: "  "})
    with pytest.raises(ValidationError):
        Consent(**{**COMPLETE, "retention_days": -1})


def test_the_shipped_parameters_consent_to_nothing() -> None:
    for profile in (None, *(path.stem for path in (ROOT / "profiles").glob("*.yaml"))):
        given = load(ROOT, profile=profile)
        assert set(given.providers) <= set(given.consents)
        for name, consent in given.consents.items():
            with pytest.raises(ProviderNotConsented):
                consent.check(name, today=date(2026, 11, 23))


FULL = {name: str(value) if isinstance(value, date) else value for name, value in COMPLETE.items()}


@pytest.mark.parametrize("base", [{}, {"consents": {"openai": dict.fromkeys(FULL)}}, {"consents": {"openai": FULL}}])
@pytest.mark.parametrize("ours", [{}, {"consents": {"openai": dict.fromkeys(FULL)}}, {"consents": {"openai": FULL}}])
@pytest.mark.parametrize(
    "theirs", [{}, {"consents": {"openai": {**FULL, "terms": "other"}}}, {"consents": {"mistral": FULL}}]
)
def test_an_upgrade_neither_grants_changes_nor_withdraws_a_consent(
    base: dict[str, Any], ours: dict[str, Any], theirs: dict[str, Any]
) -> None:
    for take in ((), ("consents",), ("consents.openai.terms",)):
        merged = merge(base, ours, theirs, take=take).values
        before, after = (
            {(provider, name): value for provider, of in side.get("consents", {}).items() for name, value in of.items()}
            for side in (ours, merged)
        )
        assert {key: value for key, value in before.items() if value is not None} == {
            key: value for key, value in after.items() if value is not None
        }


def test_a_profile_may_consent_and_dates_are_quoted(tmp_path: Path) -> None:
    values = overlay(read_params(ROOT), {"consents": {"openai": FULL}})
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(values))
    load(tmp_path).consents["openai"].check("openai", today=TODAY)
