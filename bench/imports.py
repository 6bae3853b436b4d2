"""Count the modules of this project that a takedown, a vote and an annotation round import.

Makes the small corpus of the golden comparison by commands, each a process of its own, and then takes one post down.
A module that Python loads before each command notes at its end what was imported. Of several processes of a kind, the
one with the most modules counts. The baseline is the number of modules that the project has.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:1] = [str(ROOT)]
sys.modules["tests"] = types.ModuleType("tests")
sys.modules["tests"].__path__ = [str(ROOT / "tests")]

from tests.golden import world  # noqa: E402

PACKAGES = ("pipelines", "crisis_corpus")
# what a command line begins with, by what is measured
KINDS = {"takedown": ("takedown",), "vote": ("votes",), "annotation_round": ("round",)}
NOTE = """
import atexit, json, os, sys

def note():
    names = sorted(name for name in sys.modules if name.partition(".")[0] in {packages!r})
    with open({log!r}, "a") as file:
        file.write(json.dumps([sys.argv[1:], names]) + "\\n")

def keep(event, args):
    # commands in clones get an empty PYTHONPATH
    if event == "subprocess.Popen" and args[3] is not None:
        args[3]["PYTHONPATH"] = {folder!r}

atexit.register(note)
sys.addaudithook(keep)
"""


def measured(folder: Path) -> dict[str, list[str]]:
    """Return the modules of the largest process by what is measured."""
    log, hook = folder / "imports.jsonl", folder / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(NOTE.format(packages=PACKAGES, log=str(log), folder=str(hook)))
    values = world.overlay(
        world.read(ROOT / "profiles" / "sandbox.yaml"), world.read(ROOT / "tests" / "golden" / "small.yaml")
    )
    corpora = world.World(world.check_out(ROOT, folder / "checkout", profile=values), folder / "var")
    with corpora.serving():
        # every command imports for itself
        del corpora.environment["CORPUS_FORKSERVER"]
        corpora.environment["PYTHONPATH"] = str(hook)
        corpora.make()
        truth = json.loads((corpora.home / "sandbox" / "truth_images.json").read_text())
        post = next(each["fullname"] for each in truth["images"] if each["expected"] == "kept")
        corpora.run("takedown", "--post", post, "--reason", "bench", "--yes")
    found: dict[str, list[str]] = {}
    for line in log.read_text().splitlines():
        argv, names = json.loads(line)
        for kind, start in KINDS.items():
            if tuple(argv[: len(start)]) == start and len(names) > len(found.get(kind, ())):
                found[kind] = names
    return found


def main() -> None:
    """Measure, and print a JSON line for each kind; with ``IMPORTS_LIST`` also the names."""
    modules = sum(len(list((ROOT / package).rglob("*.py"))) for package in PACKAGES)
    with tempfile.TemporaryDirectory(prefix="imports-") as folder:
        for kind, names in measured(Path(folder)).items():
            line = {"name": f"imports_{kind}", "ours": len(names), "baseline": modules}
            line |= {"baseline_name": "all modules", "ratio": round(len(names) / modules, 3), "unit": "modules"}
            sys.stdout.write(json.dumps(line) + "\n")
            if os.environ.get("IMPORTS_LIST"):
                sys.stderr.write("\n".join(names) + "\n")


if __name__ == "__main__":
    main()
