"""`corpus plan profile` lists every row of a paper's table, what it takes and what is missing, and sends nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.config.label import Consent
from pipelines.core.config.params import Params, leaves, load, overlay, parse, read_params, validate
from pipelines.core.config.settings import Settings
from pipelines.core.taxonomy import load as load_scheme
from pipelines.llm.budget import usd
from pipelines.llm.model_facts import price
from pipelines.models import kind as kinds
from pipelines.models.kind import KINDS
from pipelines.models.kinds.sft import Sft, preflight
from pipelines.operate.plan import needs
from pipelines.operate.plan import profile as profile_plan
from pipelines.operate.plan.needs import base_sizes
from pipelines.operate.plan.profile import Planning, RowPlan, paper_rows
from tests.commands import answered, output
from tests.evaluate.printed import paper as paper_of
from tests.refusals import refused
from tests.small_corpus import ROOT

DAY = date(2026, 11, 1)
ROWS = {"figsim": 22, "cradle": 15}
CONSENT = Consent(
    terms="t", retention_days=0, approved_by="a board", approved_on=date(2026, 1, 1), expires=date(2030, 1, 1)
)


@pytest.fixture(autouse=True)
def _bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave no address, key or token of this machine in the environment."""
    for vendor in ("OPENAI", "ANTHROPIC", "GOOGLE", "AZURE", "GUARD", "LOCAL"):
        monkeypatch.delenv(f"CORPUS_{vendor}_URL", raising=False)
        monkeypatch.delenv(f"CORPUS_{vendor}_KEY", raising=False)
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)


def supplied(paper: str, monkeypatch: pytest.MonkeyPatch, **changed: Any) -> Params:
    """Return the paper's parameters after everything that a person can supply was supplied."""
    for vendor in ("OPENAI", "ANTHROPIC", "GOOGLE", "AZURE"):
        monkeypatch.setenv(f"CORPUS_{vendor}_KEY", "k")
    for vendor in ("AZURE", "GUARD", "LOCAL"):
        monkeypatch.setenv(f"CORPUS_{vendor}_URL", "http://127.0.0.1:8000/v1")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "key.json")
    params = load(ROOT, profile=paper)
    pinned = {
        name: spec.model_copy(
            update={key: "0" * 40 for key, value in spec if key.endswith("revision") and value is None}
        )
        for name, spec in params.models.items()
    }
    sources = {name: one.model_copy(update={"ethics": "b"}) for name, one in params.sources.items()}
    given = {"consents": dict.fromkeys(params.consents, CONSENT), "models": pinned, "sources": sources}
    return params.model_copy(update=given | changed)


@pytest.fixture
def figsim(monkeypatch: pytest.MonkeyPatch) -> Params:
    return supplied("figsim", monkeypatch)


@pytest.fixture
def cradle(monkeypatch: pytest.MonkeyPatch) -> Params:
    return supplied("cradle", monkeypatch)


def planning(paper: str, params: Params, *, today: date = DAY, here: tuple[float, ...] = (80.0,) * 8) -> Planning:
    scheme = load_scheme(paper_of(paper).scheme)
    return Planning(paper_of(paper), params, Settings.from_env(), scheme, today, here)


def rows(paper: str, params: Params, **given: Any) -> dict[str, RowPlan]:
    made = planning(paper, params, **given)
    return {row.key: made.plan(row) for row in paper_rows(paper_of(paper))}


def told(row: RowPlan) -> str:
    return "; ".join(gap.what for gap in row.missing)


@pytest.mark.parametrize("paper", ROWS)
def test_a_bare_machine_gets_every_row_and_the_command_for_all_that_is_missing(paper: str) -> None:
    plan = answered("plan", "profile", paper, "--json")
    assert len(plan["rows"]) == ROWS[paper] and plan["runnable"] == 0
    assert all(one["command"] for one in plan["missing"])
    commands = [f"{one['command']} {one['what']}" for one in plan["missing"]]
    for command, what in {"corpus init": "the corpus repository", "corpus import": "access to"}.items():
        assert any(line.startswith(command) and what in line for line in commands)
    shared = {one["what"] for one in plan["missing"]}
    # CRADLE's posts come with its labels (section 7), so that no source is read
    assert ("ethics of source dump" in shared) == (paper == "figsim")
    # rows of vendors lack a key and a consent, rows on GPUs the GPUs, served rows the server
    for row in plan["rows"]:
        gaps = " ".join(one["what"] for one in row["missing"])
        if row["weights"] in base_sizes():
            assert "GPU memory" in gaps or "address of provider local" in gaps, row["row"]
        elif row["entry"] not in ("yadav",):
            assert ("key of provider" in gaps and "consent for provider" in gaps) or "GPU memory" in gaps, row["row"]
    assert {"CORPUS_OPENAI_KEY", "CORPUS_ANTHROPIC_KEY", "CORPUS_GOOGLE_KEY"} <= set(plan["needs"]["keys"])
    assert "CORPUS_LOCAL_URL" in plan["needs"]["servers"]


def test_the_commit_of_a_base_is_asked_for_under_its_own_key(figsim: Params) -> None:
    found = rows("figsim", figsim.model_copy(update={"models": load(ROOT, profile="figsim").models}))
    commands = {
        gap.command.split()[3] for row in found.values() for gap in row.missing if gap.what.startswith("commit")
    }
    assert {"models.mentalbert.revision", "models.blip2.revision", "models.m3h.text_revision"} == commands


def test_people_get_a_table_and_the_same_commands() -> None:
    text = " ".join(output("plan", "profile", "cradle").split())
    assert "Llama-3.1-8B-Instruct" in text and "0 of 15 rows can run here" in text
    assert "corpus import posts FILES --mapping cradle" in text and "vllm serve openai/gpt-oss-120b" in text
    assert "claude-sonnet-4-20250514 retired by its vendor on 2026-06-15" in text


@pytest.mark.parametrize("paper", ROWS)
def test_with_everything_supplied_only_retired_models_stay_away(paper: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = rows(paper, supplied(paper, monkeypatch))
    assert [row.name for row in paper_rows(paper_of(paper))] == [row.row for row in found.values()]
    gaps = {key: told(row) for key, row in found.items() if row.missing}
    retired = {"figsim": {"gemini-3-pro-zero", "gemini-3-pro-few"}, "cradle": {"claude"}}[paper]
    assert gaps.keys() == retired
    assert all("retired by its vendor on" in what for what in gaps.values())
    besides = list(planning(paper, supplied(paper, monkeypatch)).besides())
    assert len(besides) == {"figsim": 4, "cradle": 7}[paper]
    # the ensemble and the models that learn from it need the retired member's votes
    assert all(("claude-sonnet-4" in told(row)) == (paper == "cradle") for row in besides)


def test_a_host_that_still_serves_a_retired_model_makes_its_row_runnable(
    cradle: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORPUS_ANTHROPIC_URL", "https://models.example.org")
    assert not any(row.missing for row in rows("cradle", cradle).values())


def test_a_retirement_ahead_is_a_note_until_its_day(figsim: Params, cradle: Params) -> None:
    before, on = (rows("figsim", figsim, today=day)["claude-sonnet-4-5-zero"] for day in
                  (date(2026, 11, 29), date(2026, 11, 30)))  # fmt: skip
    assert before.missing == () and before.notes == (
        "claude-sonnet-4-5 will be retired by its vendor on 2026-11-30, in 1 day",
    )
    assert "retired by its vendor on 2026-11-30" in told(on) and "claude-sonnet-4-6" in on.missing[0].command
    [note] = rows("cradle", cradle)["gemini"].notes
    assert note.endswith("which then answers with gemini-3.8-flash")


def test_a_successor_never_runs_under_the_old_rows_name(cradle: Params) -> None:
    newer = cradle.labellers["claude"].model_copy(update={"model": "claude-sonnet-4-6"})
    swapped = cradle.model_copy(update={"labellers": {**cradle.labellers, "claude": newer}})
    found = rows("cradle", swapped)
    assert told(found["claude"]) == "the row's own model: entry claude has claude-sonnet-4-6"
    assert "members" in told(next(iter(planning("cradle", swapped).besides())))
    assert not found["gpt"].missing


def test_a_row_that_the_profile_does_not_list_or_that_has_no_entry_is_not_runnable(figsim: Params) -> None:
    rows_of = figsim.train.rows["memes"].model_copy(update={"models": ("bert",)})
    train = figsim.train.model_copy(update={"rows": {"memes": rows_of}})
    models = {name: spec for name, spec in figsim.models.items() if name != "qwen3-vl-zero"}
    found = rows("figsim", figsim.model_copy(update={"train": train, "models": models}))
    assert told(found["vit"]) == "vit in train.rows.memes.models" and not found["bert"].missing
    assert told(found["qwen3-vl-zero"]) == "entry qwen3-vl-zero in section models"


def test_a_row_that_rests_on_an_abstract_says_so(figsim: Params) -> None:
    designs = {kind: note for kind in KINDS.names({}) if (note := KINDS.get(kind, {}).note)}
    found = rows("figsim", figsim)
    for key, row in found.items():
        kind = load(ROOT, profile="figsim").models[key].kind
        assert (designs[kind] in row.notes) if kind in designs else not set(designs.values()) & set(row.notes)


def test_costs_are_those_of_the_price_table(cradle: Params) -> None:
    asked = rows("cradle", cradle)["gpt"].requests
    assert asked.requests == 5307
    paid = price("gpt-5", api="openai", name="gpt")
    # the answer counts eight times: hidden reasoning
    written = 320
    read = asked.tokens / asked.requests - written
    assert asked.usd_expected == pytest.approx(5307 * usd(paid, read=int(read), written=written), abs=0.01)
    assert 0 < asked.usd_expected < asked.usd_at_most
    batched = cradle.votes.model_copy(update={"batch": True})
    half = rows("cradle", cradle.model_copy(update={"votes": batched}))["gpt"].requests
    assert half.usd_expected == pytest.approx(asked.usd_expected / 2, abs=0.01)
    assert rows("cradle", cradle)["qwen3-8b-zero"].requests.usd_at_most == 0, "a server of one's own"


def test_memory_and_time_follow_from_the_numbers_of_parameters(cradle: Params) -> None:
    besides = {row.row: row.hardware for row in planning("cradle", cradle).besides()}
    full, lora = besides["Qwen3-14B, consensus"], besides["Llama-3.3-70B-Instruct, consensus"]
    params = load(ROOT, profile="cradle")
    for need, name in ((full, "qwen3-14b"), (lora, "llama-70b")):
        found = preflight.requirements(name, params=params, card=80 * 10**9)
        assert need.gpus == found.gpus == 4
        assert need.memory_gb == pytest.approx(4 * sum(found.gpu.values()) / 1e9, abs=0.1)
        assert need.disk_gb == pytest.approx(sum(found.disk.values()) / 1e9, abs=0.1)
    # SPEC 2.4: three epochs of the consensus set on three H200 take about 14 minutes
    entry = kinds.spec(params, "qwen3-14b")
    assert isinstance(entry, Sft)
    alone = needs.tuned("qwen3-14b", entry=entry, params=params, posts=4181, runs=1, of_gb=80.0)
    assert alone.gpus == 4 and alone.hours is not None
    assert (alone.hours - needs.START_HOURS) * 60 * 4 == pytest.approx(3 * 14, abs=3)


def test_a_base_of_unknown_size_is_said_to_be_unknown(figsim: Params) -> None:
    odd = figsim.models["bert"].model_copy(update={"base": "someone/odd"})
    found = rows("figsim", figsim.model_copy(update={"models": {**figsim.models, "bert": odd}}))["bert"]
    assert found.hardware.memory_gb is None and "the row's own model" in told(found)


def test_gpus_of_this_host_are_counted(cradle: Params) -> None:
    few = rows("cradle", cradle, here=(80.0,))
    assert "147 GB of GPU memory (3 GPUs of 80 GB); this host: 1 with 80 GB" in told(few["llama-70b-zero"])
    assert not few["qwen3-14b-zero"].missing


def test_the_budget_must_cover_what_is_left_to_pay(tmp_path: Path) -> None:
    params = load(ROOT, profile="cradle")
    settings = Settings.from_env()
    given = {"settings": settings, "root": ROOT, "today": DAY, "published": None}
    votes = params.votes.model_copy(update={"budget_usd": 1})
    low = profile_plan.plan("cradle", params=params.model_copy(update={"votes": votes}), **given)
    assert any("votes.budget_usd has 1.00 left" in one["what"] for one in low["missing"])
    assert not any("budget" in one["what"] for one in profile_plan.plan("cradle", params=params, **given)["missing"])
    assert not (tmp_path / "var").exists(), "a plan leaves nothing behind"


def test_published_gold_in_the_repository_is_not_missing() -> None:
    params = load(ROOT, profile="cradle")
    given = {"params": params, "settings": Settings.from_env(), "root": ROOT, "today": DAY}
    files = frozenset({"annotations/posts/cradle/gold.csv.dvc"})
    told = {one["what"].split(":")[0] for one in profile_plan.plan("cradle", published=files, **given)["missing"]}
    assert told == set()
    own = params.gold["posts"].model_copy(update={"published": None})
    given["params"] = params.model_copy(update={"gold": {**params.gold, "posts": own}})
    told = {one["what"].split(":")[0] for one in profile_plan.plan("cradle", published=files, **given)["missing"]}
    assert told == {"ethics of source dump"}, "own labels need collected posts"


def test_a_paid_ocr_is_in_the_plan_and_not_in_the_budget_of_labellers(figsim: Params) -> None:
    [row] = [row for row in planning("figsim", figsim).besides() if row.entry == "google_vision"]
    assert row.requests.requests == 57 * 180, "months from April 2018 to December 2022, and backfill's guess of each"
    assert row.requests.usd_expected == pytest.approx(row.requests.requests * 0.0015, abs=0.01)
    at = {"settings": Settings.from_env(), "root": ROOT, "today": DAY, "published": None}
    whole = profile_plan.plan("figsim", params=figsim, **at)["needs"]["usd_expected"]
    votes = figsim.votes.model_copy(update={"budget_usd": whole - row.requests.usd_expected + 0.01})
    plan = profile_plan.plan("figsim", params=figsim.model_copy(update={"votes": votes}), **at)
    assert not any("budget" in one["what"] for one in plan["missing"])
    here = figsim.images.model_copy(update={"ocr": figsim.images.ocr.model_copy(update={"engine": "rapidocr"})})
    free = planning("figsim", figsim.model_copy(update={"images": here})).besides()
    assert not any(row.row.startswith("OCR") for row in free)


def test_only_the_papers_profiles_have_a_plan() -> None:
    assert profile_plan.paper_of("figsim-2027", root=ROOT) == paper_of("figsim")
    with refused("UnknownName"):
        profile_plan.paper_of("sandbox", root=ROOT)


@pytest.mark.parametrize("paper", ROWS)
def test_a_profile_changes_something_with_every_value(paper: str) -> None:
    own = read_params(ROOT)
    before = dict(leaves(own))
    profile = parse((ROOT / "profiles" / f"{paper}.yaml").read_text(), where=paper)
    for key, value in leaves(profile):
        assert before.get(key) != value, f"{'.'.join(key)} is params.yaml's already"
    validate(overlay(own, profile), where=paper)


def profile_values(paper: str) -> Iterator[tuple[str, Any]]:
    for key, value in leaves(parse((ROOT / "profiles" / f"{paper}.yaml").read_text(), where=paper)):
        yield ".".join(key), value


def test_figsims_profile_is_what_the_paper_states() -> None:
    found = dict(profile_values("figsim"))
    trained, prompted = (
        [row.key for row in paper_rows(paper_of("figsim")) if row.key in found[listed]]
        for listed in ("train.rows.memes.models", "predict.rows.memes")
    )
    assert (len(trained), len(prompted)) == (10, 12)
    assert sorted(trained + prompted) == sorted(row.key for row in paper_rows(paper_of("figsim")))
    params = load(ROOT, profile="figsim")
    assert found.keys() == {
        "corpora.memes.last_month", "images.ocr.engine", "gold.memes.published", "split.memes.published",
        "moderation.systems.memes", "train.rows.memes.models", "train.mode", "predict.rows.memes", "votes.mode",
        "votes.budget_usd", "votes.constrained", "analysis.mode",
    }  # fmt: skip
    assert (params.images.ocr.engine, params.train.mode, params.votes.mode) == ("google_vision", "paper", "paper")
    assert params.corpora["memes"].last_month == "2022-12"
    few = {name: params.models[name] for name in found["predict.rows.memes"]}
    assert {getattr(spec, "examples", None) for name, spec in few.items() if name.endswith("-few")} == {6}
    assert {getattr(spec, "examples", None) for name, spec in few.items() if name.endswith("-zero")} == {0}


def test_cradles_profile_is_what_the_paper_states() -> None:
    found = dict(profile_values("cradle"))
    assert sorted(found["predict.rows.posts"]) == sorted(
        [*(row.key for row in paper_rows(paper_of("cradle"))), "cradle"]
    )
    params = load(ROOT, profile="cradle")
    bases = {kinds.weights(params, name) for name in found["train.rows.posts.models"]}
    assert bases == {kinds.weights(params, base) for base in paper_of("cradle").tables["table_8"].given.values()}
