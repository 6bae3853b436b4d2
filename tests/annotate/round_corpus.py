"""A small corpus in a real repository, and people who answer through the folders of the files backend."""

import json
import random
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from io import BytesIO
from pathlib import Path

import yaml
from PIL import Image

from pipelines.core.config.params import by_file, read_params
from pipelines.core.config.settings import Settings
from pipelines.core.taxonomy import Scheme, load
from pipelines.core.taxonomy.guideline import offered
from pipelines.store.vault.vault import Vault
from pipelines.workspace.clone import workspace
from tests import small_corpus
from tests.small_corpus import NOW, ROOT, SECRET, full, vote_row, write_table
from tests.stages import reproduce

__all__ = ["NOW", "SECRET"]
MONTH = "2022-11"
MEMES, POSTS = 110, 8
NOTE = "a note that stands nowhere in plain"
STAGES = {
    "sample": (["memes", "posts"], None, "sample"),
    "split": (["memes", "posts"], None, "split"),
    "gold": (["posts"], None, "gold"),
    "votes": (["posts"], ["gpt", "claude"], "votes/${item.labeller}"),
}
Item = tuple[str, int]
Truth = dict[Item, dict[str, list[str]]]


def begin(home: Path, *, settings: Settings, vault: Vault) -> None:
    """Make a corpus repository with memes and posts that are split, and with gold and votes of the posts."""
    code = home / "code"
    values = read_params(ROOT)
    values["round"] |= {"backend": "files", "daily_cap": 60}
    values["gold"]["memes"]["splits"] = None
    _stages_results(code / "made", vault=vault)
    stages = {"stages": {name: _stage(*shape) for name, shape in STAGES.items()}}
    files = {name: yaml.safe_dump(sections) for name, sections in by_file(values).items()}
    files["dvc.yaml"] = small_corpus.staged(yaml.safe_dump(stages))
    small_corpus.begin(settings, code=small_corpus.code_of(code, small_corpus.ANNOTATED | small_corpus.SHELL | files))
    with workspace(settings) as clone:
        paths = _content(clone.path, vault=vault)
        clone.add(paths)
        reproduce(clone)
        clone.commit("snapshot", paths=["data", "dvc.lock"])


def _stage(corpora: Sequence[str], labellers: Sequence[str] | None, out: str) -> dict[str, object]:
    matrix = {"corpus": list(corpora)} | ({"labeller": list(labellers)} if labellers else {})
    made, out = f"made/${{item.corpus}}/{out}", f"snapshot/${{item.corpus}}/{out}"
    return {"matrix": matrix, "cmd": f"mkdir -p {out} && cp {made}/* {out}/", "deps": [made], "outs": [out]}


def memes(vault: Vault) -> list[Item]:
    return [(vault.record_id(f"t3_m{i}"), 0) for i in range(MEMES)]


def posts(vault: Vault) -> list[Item]:
    return [(vault.record_id(f"t3_p{i}"), 0) for i in range(POSTS)]


def _content(root: Path, *, vault: Vault) -> list[Path]:
    for corpus, items in (("memes", memes(vault)), ("posts", posts(vault))):
        names = {record: f"t3_{corpus[0]}{i}" for i, (record, _) in enumerate(items)}
        small_corpus.admit(vault, names, corpus=corpus, month=MONTH)
    images = [{"record_id": r, "image": 0, "bytes": picture(i)} for i, (r, _) in enumerate(memes(vault))]
    titles = [{"record_id": row["record_id"], "title": f"Title {n}", "body": ""} for n, row in enumerate(images)]
    texts = [{"record_id": r, "title": f"Title {i}", "body": f"Body {i}"} for i, (r, _) in enumerate(posts(vault))]
    return [
        *small_corpus.write_images(root, [images], corpus="memes", month=MONTH, vault=vault),
        small_corpus.write_posts(root, titles, corpus="memes", month=MONTH, vault=vault),
        small_corpus.write_posts(root, texts, corpus="posts", month=MONTH, vault=vault),
    ]


def picture(number: int) -> bytes:
    buffer = BytesIO()
    Image.new("RGB", (8, 8), (number, number, 90)).save(buffer, format="PNG")
    return buffer.getvalue()


def _stages_results(made: Path, *, vault: Vault) -> None:
    for corpus, items in (("memes", memes(vault)), ("posts", posts(vault))):
        rows = [{"record_id": r, "image": i, "group": r, "split": "test"} for r, i in items]
        write_table(made / corpus / "split" / "splits.parquet", rows, name="splits")
        sampled = [{"record_id": r, "image": i} for r, i in items]
        write_table(made / corpus / "sample" / "sample.parquet", sampled, name="sample")
    write_gold(made, vault=vault, labels=["no_crisis"])
    # the first three differ from gold for both, the fourth for one alone
    for labeller, wrong in (("gpt", 4), ("claude", 3)):
        votes = [
            vote_row(r, labeller, labels=["selfharm_past" if i < wrong else "no_crisis"])
            for i, (r, _) in enumerate(posts(vault))
        ]
        write_table(made / "posts" / "votes" / labeller / "votes.parquet", votes, name="votes")


def write_gold(made: Path, *, vault: Vault, labels: list[str]) -> None:
    """Write the result of the stage ``gold``: these labels for every post."""
    rows = [full("gold", record_id=r, image=0, category="labels", labels=labels, how="truth") for r, _ in posts(vault)]
    write_table(made / "posts" / "gold" / "gold.parquet", rows, name="gold")


def truth(items: Sequence[Item], *, scheme: Scheme | None = None) -> Truth:
    """What everybody would answer who makes no mistake, in the words of the form."""
    found: Truth = {}
    for item in items:
        rng = random.Random(f"truth/{item}")
        found[item] = {
            key: [rng.choice([label.name for label in offered(category)])]
            for key, category in (scheme or load("figsim")).categories.items()
        }
    return found


def other(values: Mapping[str, Sequence[str]], *, key: str) -> dict[str, list[str]]:
    """The same answer with another label of one category."""
    names = [label.name for label in offered(load("figsim").categories[key])]
    wrong = next(name for name in names if [name] != list(values[key]))
    return {name: list(labels) for name, labels in values.items()} | {key: [wrong]}


def tasks(folder: Path) -> list[dict[str, object]]:
    """What a person finds in their folder."""
    path = folder / "tasks.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def items(folder: Path) -> list[Item]:
    return [item(str(task["item"])) for task in tasks(folder)]


def item(name: str) -> Item:
    record, image = name.split("/")
    return record, int(image)


def answer(
    folder: Path,
    given: Sequence[tuple[Item, Mapping[str, Sequence[str]] | None]],
    *,
    at: datetime = NOW,
    note: str = NOTE,
) -> None:
    """Answer in one folder, one item a minute; ``None`` skips."""
    lines = []
    for minute, ((record, image), values) in enumerate(given):
        told = {"values": {k: list(v) for k, v in values.items()}, "note": note} if values else {"skipped": True}
        when = (at + timedelta(minutes=minute)).isoformat()
        lines.append(json.dumps({"item": f"{record}/{image}", "answered": when, "seconds": 12.5, **told}) + "\n")
    with (folder / "answers.jsonl").open("a") as file:
        file.writelines(lines)
