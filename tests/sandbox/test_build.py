"""The files of a sandbox: the same bytes each time, every case there, nothing harmful in any text."""

import hashlib
import json
import re
from pathlib import Path

import pytest
from PIL import Image

from crisis_corpus_sandbox.reddit import build as module
from crisis_corpus_sandbox.reddit import captions
from crisis_corpus_sandbox.reddit.build import build
from crisis_corpus_sandbox.reddit.generated_posts import SMALLEST, counts
from crisis_corpus_sandbox.reddit.image_host import placeholder, placeholder_sha256
from pipelines.core.config.params import load
from tests.sandbox.test_server import BEHAVIOURS
from tests.small_sandbox import SMALL

PROFILE = Path(__file__).parents[2]
# Words that synthetic text must never contain; nothing here describes anything.
WORDS = "kill die death dead hang jump blood cut gun knife rope pills overdose razor noose poison bridge burn drown"
FORBIDDEN = set(WORDS.split())


def digests(root: Path) -> dict[str, str]:
    files = sorted(p for p in root.rglob("*") if p.is_file())
    return {str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def test_same_parameters_give_the_same_bytes(built, tmp_path, monkeypatch):
    monkeypatch.setattr(module.os, "cpu_count", lambda: 1)
    build(tmp_path, sandbox=SMALL)
    assert digests(tmp_path) == digests(built)


def test_another_seed_or_port_is_another_sandbox(built):
    marker = json.loads((built / "build.json").read_text())
    for change in ({"seed": 4}, {"port": 8124}, {"months": ("2022-11",)}):
        assert module._identity(SMALL.model_copy(update=change)) != marker["identity"]


def test_an_identical_build_is_not_repeated(built):
    before = {p: p.stat().st_mtime_ns for p in built.rglob("*") if p.is_file()}
    counted = build(built, sandbox=SMALL)
    assert counted["submissions"] == SMALLEST
    assert before == {p: p.stat().st_mtime_ns for p in built.rglob("*") if p.is_file()}


def test_case_counts_add_up():
    assert sum(counts(600).values()) == 600
    with pytest.raises(ValueError, match="at least"):
        counts(SMALLEST - 1)


def test_every_file_is_served_and_every_served_file_exists(built, known):
    served = json.loads((built / "images.json").read_text())
    files = {p.name for p in (built / "images").iterdir()}
    assert set(served) == files
    assert {i["file"] for i in known["images"] if i["file"]} <= files
    assert {entry["behaviour"] for entry in served.values()} == set(BEHAVIOURS)


def test_kept_pictures_open_and_keep_their_format(built, known):
    for image in known["images"]:
        if image["expected"] == "kept":
            with Image.open(built / "images" / image["file"], formats=["JPEG", "PNG", "WEBP", "GIF"]) as picture:
                picture.load()
                assert min(picture.size) > 300


def test_broken_pictures_are_broken(built, known):
    by_case = {s["fullname"]: s["case"] for s in known["submissions"]}
    files = {by_case[i["fullname"]]: built / "images" / i["file"] for i in known["images"] if i["file"]}
    assert files["huge"].stat().st_size > load(PROFILE, profile="sandbox").images.fetch.max_bytes
    assert files["placeholder"].read_bytes() == placeholder()
    for case in ("broken", "wrong_type", "cut_file"):
        with pytest.raises(OSError), Image.open(files[case]) as picture:
            picture.load()
    with Image.open(files["too_many_frames"]) as gif:
        assert gif.n_frames > 200
    with Image.open(files["gif"]) as gif:
        assert gif.n_frames > 1


def test_the_profile_knows_the_placeholder():
    assert placeholder_sha256() in load(PROFILE, profile="sandbox").images.fetch.placeholders


def test_no_forbidden_word_in_any_text(built, known, items):
    lists = [captions.WHO, captions.DOES, captions.DOING, captions.THINGS, captions.WHICH, captions.WHEN]
    lists += [captions.LABELS, captions.CALM, *captions.PHRASES.values(), *captions.CRISES.values()]
    spoken = [text for texts in lists for text in texts]
    spoken += [f"{i['title']} {i['selftext']}" for i in items.values()]
    spoken += [i["text"] for i in known["images"] if i["language"] == "en"]
    assert not set(re.findall(r"[a-z]+", " ".join(spoken).lower())) & FORBIDDEN


def test_a_build_that_was_killed_is_repeated(tmp_path, monkeypatch):
    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "_world", killed)
        with pytest.raises(KeyboardInterrupt):
            build(tmp_path, sandbox=SMALL)
    assert not (tmp_path / module.MARKER).exists()
    monkeypatch.setattr(module, "_world", lambda root, **_: {"submissions": SMALLEST})
    assert build(tmp_path, sandbox=SMALL) == {"submissions": SMALLEST}
    assert json.loads((tmp_path / module.MARKER).read_text())["counts"] == {"submissions": SMALLEST}
    assert not list(tmp_path.glob("*.partial"))
