"""Find words of the project's former dialect; as a command, print those that the staged change adds."""

from __future__ import annotations

import re
import subprocess
import sys

WORDS = re.compile(
    r"\b(whom|whoever|whosoever|nobody|somebody|anybody|who is (?:gone|due|ahead)|is none that|is no champion|is told"
    r"|are told|says of|what it is|as it is|as they are|by hand|the house|stands|what came out|anew)\b",
    re.IGNORECASE,
)
# Synthetic posts, prompts, schemes and quotations, whose wording is content or hashed; test data such as user names;
# PostgreSQL's system user; the text of the licence; and this list itself.
ALLOWED = (
    "LICENSE",
    "client/LICENSE",
    "bench/second_world/words.toml",  # captions
    "docs/javascripts/",  # a licence
    "sandbox/crisis_corpus_sandbox/reddit/",
    "pipelines/core/taxonomy/schemes/",
    "pipelines/core/taxonomy/guideline.py",
    "pipelines/label/memes/rationales.py",
    "pipelines/llm/prompting/templates.py",
    "pipelines/operate/services/postgres.py",
    "docs/dependencies.md",
    "tests/language.py",
    "tests/postgres.py",
    "tests/test_language.py",
    "tests/annotate/round_corpus.py",
    "tests/annotate/test_imports.py",
    "tests/annotate/test_label_studio_form.py",
    "tests/curate/",
    "tests/extract/",
    "tests/label/",
    "tests/llm/",
    "tests/pii/",
    "tests/privacy/test_gone.py",
    "tests/privacy/test_scrub.py",
    "tests/privacy/test_selection.py",
    "tests/registry/test_model.py",
    "tests/registry/test_pack_memes.py",
    "tests/release/test_hydrate.py",
    "tests/sandbox/test_vendors.py",
    "tests/test_params.py",
    "tests/train/",
)


def dialect(line: str) -> list[str]:
    """Return the words of the dialect in a line."""
    return [match[0] for match in WORDS.finditer(line)]


def main() -> None:
    """Print the lines that the staged change adds and that have words of the dialect."""
    argv = ["git", "diff", "--cached", "--unified=0", "--no-color"]
    name = ""
    for line in subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines():
        if line.startswith("+++ "):
            name = line[6:]
        elif line.startswith("+") and not name.startswith(ALLOWED) and (words := dialect(line)):
            sys.stdout.write(f"{name}: {', '.join(words)}: {line[1:].strip()}\n")


if __name__ == "__main__":
    main()
