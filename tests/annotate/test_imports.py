"""Imports of published datasets: the papers' counts are found, a difference is named, and the corpus gets its share."""

import csv
import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest
import yaml
from PIL import Image
from rich.console import Console

from pipelines.annotate import gold
from pipelines.annotate.imports import imports, mapping
from pipelines.annotate.imports.published_files import UnreadableFile
from pipelines.core.config.params import Params, load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams
from pipelines.curate.items import published_split, read_tracked
from pipelines.store import tables
from pipelines.store.exclusions import WHOLE, write_exclusions
from pipelines.store.seal import open_column
from pipelines.store.vault.vault import Vault
from pipelines.workspace.clone import workspace
from pipelines.workspace.git import git
from pipelines.workspace.publish import publish_partition
from tests import small_corpus
from tests.annotate import published_sets as sets
from tests.contexts import context_of
from tests.refusals import refused
from tests.stages import rerun

ROOT = Path(__file__).resolve().parents[2]
NOW = datetime(2026, 1, 2, tzinfo=UTC)
OWN = {"users": "cssrs", "graded": "cssrs", "places": "communities"}


@pytest.fixture(scope="module")
def params() -> Params:
    values = load(ROOT)
    own = {name: values.corpora["posts"].model_copy(update={"scheme": scheme}) for name, scheme in OWN.items()}
    return values.model_copy(update={"corpora": {**values.corpora, **own}})


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with DVC and nothing else."""
    files = small_corpus.BASIC | {"annotations/.gitignore": "*.parquet\n*.csv\n", ".gitignore": "/work/\n"}
    return small_corpus.code_of(tmp_path_factory.mktemp("code"), files)


@pytest.fixture
def settings(tmp_path: Path, empty: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    found = Settings.from_env()
    small_corpus.begin(found, code=empty)
    return found


@pytest.fixture
def vault(settings: Settings) -> Iterator[Vault]:
    with Vault.open(settings.vault_url, secret=settings.secret()) as opened:
        yield opened


class Imports:
    """Runs imports into one corpus repository and reads what they left."""

    def __init__(self, params: Params, settings: Settings, vault: Vault) -> None:
        self.params, self.settings, self.vault = params, settings, vault

    def __call__(self, corpus, name, *files, **options):
        own = {"params": self.params, "settings": self.settings, "vault": self.vault}
        return imports.run(corpus, files=files, mapping=name, now=NOW, **own, **options)

    def git(self, *argv: str) -> str:
        return git("--git-dir", self.settings.repo, *argv)

    def show(self, path: str) -> str:
        return self.git("show", f"corpus:{path}")

    def names(self) -> list[str]:
        return self.git("ls-tree", "-r", "--name-only", "corpus").splitlines()

    def head(self) -> str:
        return self.git("rev-parse", "corpus")

    def figsim(self, folder: Path) -> dict[str, object]:
        """Write and import the memes of FigSIM."""
        sets.figsim(folder / "figsim.csv")
        return self("memes", "figsim", folder / "figsim.csv")

    def read(self, path: str) -> str:
        """Return a file that DVC tracks at the tip."""
        with workspace(self.settings) as clone:
            return read_tracked(clone.path / path, root=clone.path)

    def rows(self, path: str) -> list[dict[str, str]]:
        return list(csv.DictReader(StringIO(self.read(path))))

    def posts(self, corpus: str) -> dict[str, dict[str, object]]:
        """Return the rows of all posts, their bodies in plain text, by record."""
        with workspace(self.settings) as clone:
            pointers = {n.removesuffix(".dvc"): self.show(n) for n in self.names() if n.endswith("records.parquet.dvc")}
            clone.checkout(*pointers)
            table = tables.concat([clone.path / name for name in pointers], name="records")
        bodies = open_column(table, name="records", column="body", vault=self.vault)
        return {
            row["record_id"]: {**row, "body": (body or b"").decode()}
            for row, body in zip(table.to_pylist(), bodies, strict=True)
        }


@pytest.fixture
def run(params: Params, settings: Settings, vault: Vault) -> Imports:
    return Imports(params, settings, vault)


def test_figsims_counts_are_table_8s_and_stages_read_its_labels_and_splits(run, tmp_path, params, settings, vault):
    report = run.figsim(tmp_path)
    assert (report["rows"], report["items"], report["reddit"], report["bad"]) == (1049, 1049, 1049, {})
    assert (report["differences"], report["matches"], len(report["table"])) == ([], True, 3 * 22)
    assert report["parts"]["test"]["labels"]["related"]["None"] == 82
    assert (report["gold"], report["silver"], report["splits"]) == (1049, 0, 1049)

    labelled = run.rows("annotations/memes/figsim/gold.csv")
    found = Counter((row["category"], label) for row in labelled for label in row["labels"].split("|"))
    assert found["severity", "Suicide attempts"] == 167 and found["severity", "Suicide death"] == 30
    assert found["related", "Third-person description"] == 21
    assert found["figurative", ""] == 146, "nothing figurative is the empty set"
    own = [row for row in labelled if row["record_id"] == vault.record_id("t3_100001")]
    [first] = [row for row in own if row["category"] == "context"]
    assert (first["image"], first["labels"]) == ("0", "no-context-required")
    assert not [name for name in run.names() if name.startswith("data/") and name.endswith(".dvc")]

    record = json.loads(run.show("annotations/memes/figsim/import.json"))
    assert record["items"] == 1049 and record["matches"] is True and record["pointers"] == {}
    assert set(record["digests"]) == {"figsim.csv"}, "counts and digests only"

    section = params.split["memes"].model_copy(update={"published": "annotations/memes/figsim/splits.csv"})
    with workspace(settings) as clone:
        found = published_split(section, root=clone.path)
    assert Counter(found.values()) == {"train": 633, "validation": 208, "test": 208}
    assert first["record_id"] not in run.git("log", "-p", "corpus"), "a takedown cannot rewrite git's history"

    # DVC holds locks while it runs a stage, and the stage asks it for the file
    code = "from pathlib import Path; from pipelines.curate.items import read_tracked; Path('read').write_text("
    code += "read_tracked(Path('annotations/memes/figsim/splits.csv').absolute(), root=Path.cwd()))"
    stage = {"deps": ["data"], "cmd": f'python -c "{code}"', "outs": [{"read": {"cache": False}}]}
    with workspace(settings) as clone:
        (clone.path / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"reads": stage}}))
        assert rerun(clone, "reads") == ["reads"]
        assert len((clone.path / "read").read_text().splitlines()) == 1 + 1049

    (tmp_path / "gold.csv").write_text(run.read("annotations/memes/figsim/gold.csv"))
    sampled = [{"record_id": record_id, "image": 0} for record_id in {row["record_id"] for row in labelled}]
    small_corpus.write_table(tmp_path / "snapshot/memes/sample/sample.parquet", sampled, name="sample")
    taking = params.gold["memes"].model_copy(update={"published": "gold.csv"})
    params = params.model_copy(update={"gold": {**params.gold, "memes": taking}})
    metrics = gold.run(context_of("memes", params=params, settings=settings, vault=vault, root=tmp_path))
    assert (metrics["records"], metrics["without"]) == (1049, 0)


def test_a_label_that_differs_from_the_paper_is_named_and_stops_nothing(run, tmp_path):
    path = tmp_path / "figsim.csv"
    sets.figsim(path)
    rows = list(csv.reader(path.open()))
    rows[1][rows[0].index("C1")], rows[1][rows[0].index("C2")] = "0", "1"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    seen = StringIO()
    report = run("memes", "figsim", path, console=Console(file=seen, width=120))
    assert report["differences"] == ["train, C1: 552 found, 553 expected", "train, C2: 81 found, 80 expected"]
    assert (report["matches"], report["changed"]) == (False, True)
    assert "differs by -1" in seen.getvalue()


def test_cradles_counts_are_those_of_its_tables_and_only_people_give_gold(run, tmp_path):
    names = ("dev", "test", "train_unanimous")
    files = [sets.jsonl(tmp_path / f"{name}.jsonl", sets.cradle(name)) for name in names]
    before = run.head()
    report = run("posts", "cradle", *files, dry_run=True)
    differing = {line["part"] for line in report["table"] if not line["matches"]}
    assert differing == {"train_consensus"}, "the unanimous set alone is a share of the consensus set"
    consensus = sets.jsonl(tmp_path / "train.jsonl", sets.cradle("train_consensus"))
    report = run("posts", "cradle", *files[:2], consensus, dry_run=True)
    assert (report["matches"], report["absent"]) == (True, ["train_unanimous"])
    lines = {line["what"] for line in report["table"]}
    assert lines >= {"items with 2 labels", "labels of Rape", "labels with time past"}
    assert report["items"] == 420 + 600 + 4181
    assert run.head() == before, "a dry run writes nothing"


def test_texts_are_sealed_and_scrubbed_like_collected_ones_and_an_import_again_changes_nothing(run, tmp_path, vault):
    dev = sets.cradle("dev")[:60]
    dev[0]["text"] += " Write to someone@example.org."
    train = [{**row, "labels": "no_crisis"} for row in sets.cradle("train_unanimous")[:5]]
    files = [sets.jsonl(tmp_path / "dev.jsonl", dev), sets.jsonl(tmp_path / "train_unanimous.jsonl", train)]
    report = run("posts", "cradle", *files)
    assert report["texts"] == {"kept": 65, "dropped": {}}
    assert (report["gold"], report["silver"], report["splits"]) == (60, 5, 65)
    assert {row["split"] for row in run.rows("annotations/posts/cradle/splits.csv")} == {"dev", "train"}
    assert {row["agreement"] for row in run.rows("annotations/posts/cradle/silver.csv")} == {"unanimous"}
    posts = run.posts("posts")
    assert len(posts) == 65
    assert not any("someone@example.org" in str(post["body"]) for post in posts.values())
    assert len({post["author_id"] for post in posts.values()}) == 65, "posts without an author are not linked"
    assert {f"{post['created']:%Y-%m}" for post in posts.values()} == {"2017-12"}
    assert not any(word in run.show(name) for name in run.names() for word in ("walked past", "A note about"))

    head = run.head()
    again = run("posts", "cradle", *reversed(files))
    assert (again["changed"], again["commit"]) == (False, head)

    taken = next(iter(posts))
    vault.destroy([taken], reason="test", now=NOW)
    last = run("posts", "cradle", *files)
    assert (last["tombstoned"], last["changed"]) == (1, True)
    assert taken not in run.posts("posts")
    assert taken not in run.read("annotations/posts/cradle/gold.csv") + run.read("annotations/posts/cradle/splits.csv")


def test_a_person_with_all_their_posts_is_one_record(run, tmp_path, vault):
    sets.cssrs(tmp_path / "all.csv")
    assert run("users", "cssrs", tmp_path / "all.csv", dry_run=True)["matches"] is True
    sets.cssrs(tmp_path / "some.csv", people=20)
    report = run("users", "cssrs", tmp_path / "some.csv")
    assert report["differences"][0] == "all, items: 20 found, 500 expected"
    assert (report["gold"], report["splits"], report["texts"]["kept"]) == (20, 0, 20)
    record_id = vault.record_id("cssrs/user-3", domain="import")
    post = run.posts("users")[record_id]
    assert str(post["body"]).count('It\'s "quoted".') == 2
    assert post["author_id"] != vault.author_id("user-3"), "a name in a dataset is not a Reddit name"
    assert {row["labels"] for row in run.rows("annotations/users/cssrs/gold.csv")} == {"Supportive"}
    assert "annotations/users/cssrs/gold.csv.dvc" in run.names()
    assert "annotations/users/cssrs/splits.csv.dvc" not in run.names()


def test_cells_that_a_spreadsheet_cut_keep_their_complete_posts_and_are_counted(run, tmp_path, vault):
    sets.cut_cssrs(tmp_path / "people.csv")
    console = Console(file=StringIO(), width=200)
    report = run("users", "cssrs", tmp_path / "people.csv", dry_run=True, console=console)
    assert (report["items"], report["bad"], report["refused"], report["matches"]) == (500, {}, None, True)
    assert report["cut"]["rows"] == 28
    assert "cut off, complete posts kept: 28 rows (people.csv:" in console.file.getvalue()
    complete = sets.cut_cssrs(tmp_path / "some.csv", cut=2, people=4)
    assert run("users", "cssrs", tmp_path / "some.csv")["cut"]["rows"] == 2
    posts = run.posts("users")
    for i, kept in enumerate(complete):
        body = str(posts[vault.record_id(f"cssrs/user-{i}", domain="import")]["body"])
        assert body.count("Today I walked past") == len(kept)
        assert (len(kept) > 100) == (i < 2)
    record = json.loads(run.show("annotations/users/cssrs/import.json"))
    assert (record["cut"], record["left_out"]) == (2, 0)
    assert "some.csv:" not in json.dumps(record), "no line of a person"


def test_posts_with_a_person_and_a_time_each(run, tmp_path, vault):
    sets.rsd15k(tmp_path / "rsd_15k.csv")
    report = run("graded", "rsd15k", tmp_path / "rsd_15k.csv", dry_run=True)
    assert (report["rows"], report["items"], report["bad"], report["reddit"]) == (145, 145, {}, 0)
    labels = {"Indicator": 46, "Ideation": 71, "Behavior": 20, "Attempt": 8}
    assert report["parts"]["all"]["labels"]["severity"] == labels
    sets.rsd15k(tmp_path / "rsd_15k.csv", share=800)
    report = run("graded", "rsd15k", tmp_path / "rsd_15k.csv")
    assert (report["gold"], report["silver"], report["splits"], report["texts"]["kept"]) == (16, 0, 0, 16)
    posts = run.posts("graded").values()
    assert len({post["author_id"] for post in posts}) == 2
    assert vault.author_id("0") not in {post["author_id"] for post in posts}, "no name of Reddit"
    assert {str(post["created"])[:7] for post in posts} == {"2020-01"}


def test_labels_that_are_subreddits_are_no_gold(run, tmp_path, vault):
    files = sets.swmh(tmp_path)
    report = run("places", "swmh", *files, dry_run=True)
    parts = {part: found["items"] for part, found in report["parts"].items()}
    assert parts == {"all": 133, "train": 67, "validation": 33, "test": 33}
    assert (report["parts"]["all"]["labels"]["community"]["bipolar"], report["bad"]) == (19, {})

    assert run("places", "sdcnl", *sets.sdcnl(tmp_path, empty=7), dry_run=True)["items"] == 20
    report = run("places", "sdcnl", *sets.sdcnl(tmp_path))
    assert (report["items"], report["reddit"], report["bad"]) == (20, 20, {})
    assert (report["gold"], report["silver"], report["splits"]) == (0, 20, 20)
    assert report["parts"]["all"]["labels"]["community"] == {"SuicideWatch": 10, "depression": 10}
    splits = Counter(row["split"] for row in run.rows("annotations/places/sdcnl/splits.csv"))
    assert splits == {"train": 16, "test": 4}
    silver = {row["record_id"]: row["labels"] for row in run.rows("annotations/places/sdcnl/silver.csv")}
    assert silver[vault.record_id(f"t3_{100_003}")] == "SuicideWatch"
    assert {row["agreement"] for row in run.rows("annotations/places/sdcnl/silver.csv")} == {"consensus"}
    writers = {vault.author_id(f"writer_{i}") for i in range(9)}
    assert {post["author_id"] for post in run.posts("places").values()} <= writers


def test_too_many_bad_rows_stop_an_import_with_their_lines_and_none_of_their_words(run, tmp_path):
    rows = sets.cradle("dev")[:100]
    rows[3]["labels"] = ["heartbreak"]
    path = sets.jsonl(tmp_path / "dev.jsonl", rows)
    assert run("posts", "cradle", path, dry_run=True)["refused"] is None
    report = run("posts", "cradle", path)
    assert report["bad"] == {"labels: unknown_label": {"rows": 1, "lines": ["dev.jsonl:4"]}}
    assert (report["unknown_labels"], report["items"]) == (1, 99)

    rows[7]["labels"] = ["no_crisis", "rape_past"]
    path = sets.jsonl(tmp_path / "dev.jsonl", rows)
    head = run.head()
    with refused("BadImport", match=r"2 of 100 rows .*dev\.jsonl:8.*dev\.jsonl:4") as caught:
        run("posts", "cradle", path)
    assert "heartbreak" not in str(caught.value) and "walked" not in str(caught.value)
    assert run.head() == head
    assert "2 of 100" in str(run("posts", "cradle", path, dry_run=True)["refused"])
    with refused("BadImport", match=r"more than the share of 0\.015 that may be left out"):
        run("posts", "cradle", path, allow_bad=0.015)
    report = run("posts", "cradle", path, allow_bad=0.02)
    assert (report["items"], report["refused"]) == (98, None)
    assert json.loads(run.show("annotations/posts/cradle/import.json"))["left_out"] == 2


def test_a_post_that_the_corpus_has_from_reddit_keeps_its_own_copy(run, tmp_path, settings, vault):
    collect_one(settings, vault=vault, fullname="t3_abcdef", month="2022-12", dropped="t3_abcdeg")
    rows = sets.cradle("dev")[:10]
    for i, row in enumerate(rows):
        row["post_id"] = f"abcde{'fghijklmno'[i]}"
    path = sets.jsonl(tmp_path / "dev.jsonl", rows)
    report = run("posts", "cradle", path)
    assert report["texts"] == {"kept": 9, "dropped": {"collected": 1}}
    assert report["gold"] == 10, "its labels come in all the same"
    assert (report["matched"], report["dropped"], report["not_collected"]) == (1, {"too_short": 1}, 8)
    assert "1 match posts of the corpus, 1 are of posts that it dropped (too_short: 1), 8 are" in imports.sentence(
        report, pictures=False
    )
    assert len(run.posts("posts")) == 10


def test_a_month_of_collected_posts_is_never_overwritten(run, tmp_path, settings, vault):
    collect_one(settings, vault=vault, fullname="t3_abcdef", month="2017-12")
    path = sets.jsonl(tmp_path / "dev.jsonl", sets.cradle("dev")[:10])
    with refused("BadImport", match="2017-12 of corpus posts has posts from another source"):
        run("posts", "cradle", path)


def collect_one(settings: Settings, *, vault: Vault, fullname: str, month: str, dropped: str = "t3_short") -> None:
    """Commit a month with one post, and one that was too short, as the collecting Dag does."""
    row = {"record_id": vault.record_id(fullname), "title": "A title", "body": "A body that was collected."}
    short = vault.record_id(dropped)
    vault.admit([(row["record_id"], fullname), (short, dropped)], corpus="posts", month=month, now=NOW)
    with workspace(settings) as clone:
        path = small_corpus.write_posts(clone.path, [row], corpus="posts", month=month, vault=vault)
        drops = path.with_name("drops.parquet")
        write_exclusions({(short, WHOLE): "too_short"}, drops, step="texts")
        pointers = clone.add([path, drops])
    publish_partition(settings, corpus="posts", month=month, pointers=pointers, leave_out=lambda *_: 0)


def test_a_corpus_that_does_not_fit_is_refused(run, tmp_path):
    cases = {("nowhere", "figsim"): "define it", ("posts", "figsim"): "label scheme cradle"}
    for (corpus, name), says in (cases | {("memes", "cradle"): "label scheme figsim"}).items():
        with pytest.raises(BadParams, match=says):
            run(corpus, name, tmp_path / "figsim.csv")


def test_a_file_without_the_columns_is_refused_and_not_quoted(run, tmp_path):
    path = tmp_path / "figsim.csv"
    path.write_text("a private remark,split,F1\nt3_abcdef,train,1\n")
    with refused("BadImport", match=r"no column for .*labels\.context") as caught:
        run("memes", "figsim", path)
    assert "remark" not in str(caught.value) and "columns of the file: split" in str(caught.value)
    path.write_text("permlink,split,contexts\nt3_abcdef,train,1\n")
    with refused("BadImport", match=r"picture or text\) \(the mapping has .*; nearest: permlink\)") as caught:
        run("memes", "figsim", path)
    assert "columns of the file: contexts, permlink, split" in str(caught.value)
    path.write_text('permalink,split\n"never closed,train\n')
    with pytest.raises(UnreadableFile, match=r"figsim\.csv cannot be read at row 2"):
        run("memes", "figsim", path)
    path.write_text("permalink,split\n")
    with refused("BadImport", match="no rows"):
        run("memes", "figsim", path)


def test_a_round_of_the_same_name_is_never_written_into(run, tmp_path, settings):
    with workspace(settings) as clone:
        path = clone.path / "annotations" / "memes" / "figsim" / "manifest.yaml"
        path.parent.mkdir(parents=True)
        path.write_text("round: figsim\n")
        clone.commit("round")
    with refused("BadImport", match="round has this name"):
        run.figsim(tmp_path)


def test_pictures_of_a_folder_are_sealed_read_and_counted_like_collected_ones(run, tmp_path, vault):
    decode = run.params.images.decode.model_copy(update={"sandbox": "accepted_without"})
    ocr = run.params.images.ocr.model_copy(update={"sandbox": "accepted_without"})
    images = run.params.images.model_copy(update={"decode": decode, "ocr": ocr})
    run.params = run.params.model_copy(update={"images": images})
    flags = {"F1": 1, "SS1": 1, "SR6": 1, "M1": 1, "C1": 1}
    rows = [{**dict.fromkeys(sets.CODES, 0), **flags, "id": i, "img": f"img/{i}.png"} for i in range(4)]
    rows = [row | {"text": f"the garden by the river in the morning, number {row['id']}"} for row in rows]
    path = sets.jsonl(tmp_path / "train.json", rows)
    columns = {"own": ["id"], "picture": ["img"], "body": ["text"]}
    made = yaml.safe_load((mapping.FOLDER / "figsim.yaml").read_text())
    made |= {"dataset": "folder", "columns": columns, "month": "2017-12", "expected": {}, "rights": "ours, for tests"}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(made))
    mine = str(tmp_path / "mine.yaml")
    with refused("BadImport", match=r"0 of 4 items have a picture: .* pass --pictures FOLDER"):
        run("memes", mine, path)

    folder = tmp_path / "pictures"
    (folder / "img").mkdir(parents=True)
    for i in range(2):
        Image.effect_noise((400, 300), 40 + 9 * i).convert("RGB").save(folder / "img" / f"{i}.png")
    (folder / "img" / "2.png").write_bytes(b"no picture")
    (tmp_path / "3.png").write_bytes((folder / "img" / "0.png").read_bytes())
    (folder / "img" / "3.png").symlink_to(tmp_path / "3.png")
    report = run("memes", mine, path, pictures=folder)
    assert (report["pictures"], report["gold"], report["splits"]) == (3, 4, 4), "a link does not lead out of the folder"
    assert report["images"] == {"kept": 2, "dropped": {"no_picture_file": 1, "not_an_image": 1}}
    assert "3 of 4 items have a picture." in imports.sentence(report, pictures=True)
    record = json.loads(run.show("annotations/memes/folder/import.json"))
    assert (record["source"], record["rights"], record["pictures"]) == (made["source"], "ours, for tests", 3)
    with workspace(run.settings) as clone:
        names = [n.removesuffix(".dvc") for n in run.names() if "/images" in n and n.endswith(".dvc")]
        clone.checkout(*names)
        table = tables.concat([clone.path / name for name in names], name="images")
    texts = open_column(table, name="images", column="text", vault=vault)
    assert sorted(text.decode() for text in texts) == [row["text"] for row in rows[:2]]
    assert set(table["ocr_engine"].to_pylist()) == {"published/folder"} and table["text_area"].null_count == 2
    assert not any(b"garden" in value for value in table["text"].to_pylist())
    assert run("memes", mine, path, pictures=folder)["changed"] is False
