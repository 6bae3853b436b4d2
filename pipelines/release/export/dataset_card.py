"""Write the dataset card of an exported release for people (``README.md``) and for machines (``croissant.json``)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.core.templates import render
from pipelines.release.export.folder import LICENCE

HERE = Path(__file__).parent
MEANINGS = {
    "id": "the post's id, which only this release has",
    "image": "the picture's place in its gallery, from 0",
    "month": "when the post was made, generalised to month, quarter or year, or any time",
    "subreddit": "where it was posted, or other",
    "agreement": "gold: labelled by people; unanimous, consensus: by how many models of an ensemble",
}
# The Hub's classes of sizes, by the number of rows below which they end.
SIZES = {10**3: "n<1K", 10**4: "1K<n<10K", 10**5: "10K<n<100K", 10**6: "100K<n<1M"}
PROMPT = (
    "These labels are about posts by people in crisis. By requesting access you agree to the terms in LICENSE: "
    "research only; no attempt to identify or contact an author; and to get the current removal list before every use, "
    "and delete what is on it."
)
FIELDS = {
    "Name": "text",
    "Institution": "text",
    "Purpose of the research": "text",
    "I will not try to identify or contact an author": "checkbox",
    "I will delete posts that are on the removal list": "checkbox",
}


def text(*, facts: Mapping[str, Any], repo: str, removed: int, counts: Mapping[str, int], columns: pa.Schema) -> str:
    """Return the text of ``README.md``.

    ``facts`` is the manifest of the release's package, ``removed`` the number of the release's removal list, and
    ``counts`` has the number of rows by split.
    """
    from huggingface_hub import DatasetCardData

    files = [{"split": split, "path": f"data/{split}.parquet"} for split in counts]
    head = DatasetCardData(
        language="en",
        license="other",
        license_name=f"{facts['release']}-terms",
        license_link=LICENCE,
        pretty_name=facts["title"],
        size_categories=[size_of(sum(counts.values()))],
        task_categories=["image-classification" if facts["form"] == "figsim" else "text-classification"],
        tags=["labels-only", "croissant"],
        configs=[{"config_name": "default", "data_files": files}],
        extra_gated_prompt=PROMPT,
        extra_gated_fields=FIELDS,
    )
    names = {"facts": facts, "repo": repo, "removed": removed, "counts": counts, "columns": columns, "licence": LICENCE}
    body = render(HERE / "dataset_card.md.jinja", **names, summary=summary(facts), meaning=meaning)
    return f"---\n{head.to_yaml()}\n---\n\n{body}"


def summary(facts: Mapping[str, Any]) -> str:
    """Return what a release is, in two sentences."""
    return (
        f"Labels and splits of posts about crises: release {facts['release']} of the corpus {facts['corpus']}, "
        f"labelled with the scheme {facts['scheme']}. It contains ids of its own instead of posts, which are fetched "
        "from Reddit with a key."
    )


def meaning(column: str) -> str:
    """Return the content of a column in words."""
    return MEANINGS.get(column, f"the labels of the category {column}")


def size_of(rows: int) -> str:
    """Return the Hub's class of sizes for a number of rows."""
    return next((name for limit, name in SIZES.items() if rows < limit), "1M<n<10M")


FILE = "croissant.json"
VERSION = "http://mlcommons.org/croissant/1.1"
# Not registered, but what the Hub and mlcroissant call it.
FORMAT = "application/x-parquet"
# The terms of the specification's context (appendix 1), and those that mlcroissant warns of if they are not in it.
TERMS = (
    "annotation", "arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "excludes", "extract", "field",
    "fileObject", "fileProperty", "fileSet", "format", "includes", "isArray", "isLiveDataset", "jsonPath", "key", "md5",
    "parentField", "path", "readLines", "recordSet", "references", "regex", "repeated", "replace", "samplingRate",
    "sdVersion", "separator", "source", "subField", "transform", "unArchive", "value",
)  # fmt: skip
CONTEXT: Mapping[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{term: f"cr:{term}" for term in TERMS},
}
# What a list of any length has as its shape.
ANY_LENGTH = "-1"


def croissant(
    *,
    facts: Mapping[str, Any],
    repo: str,
    url: str,
    removed: int,
    columns: pa.Schema,
    files: Mapping[str, tuple[str, int, str]],
) -> str:
    """Return the text of ``croissant.json``, the description of the tables for machines (Croissant 1.1, MLCommons).

    Each new removal list (``removed``) begins a new major version, as in SemVer for records that leave. ``files`` has
    by split the path of its table in the folder, its size in bytes and its SHA-256.
    """
    title, name, on = facts["title"], facts["release"], facts["approved_on"]
    made = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": VERSION,
        "name": name,
        "description": summary(facts),
        "url": url,
        "license": f"{url}/blob/main/{LICENCE}",
        "version": f"{1 + removed}.0.0",
        "datePublished": on,
        "creator": {"@type": "sc:Organization", "name": repo.partition("/")[0]},
        "citeAs": f"@misc{{{name}, title={{{title}}}, year={{{on[:4]}}}, url={{{url}}}}}",
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": path,
                "name": path,
                "contentUrl": path,
                "contentSize": f"{size} B",
                "encodingFormat": FORMAT,
                "sha256": sha256,
            }
            for path, size, sha256 in files.values()
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": split,
                "name": split,
                "description": f"The items of the split {split}.",
                "field": list(_fields(split, path=path, columns=columns)),
            }
            for split, (path, _, _) in files.items()
        ],
    }
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"


def _fields(split: str, *, path: str, columns: pa.Schema) -> Iterator[dict[str, Any]]:
    for column in columns:
        listed = pa.types.is_list(column.type)
        yield {
            "@type": "cr:Field",
            "@id": f"{split}/{column.name}",
            "name": column.name,
            "description": meaning(column.name),
            "dataType": "cr:Int32" if pa.types.is_integer(column.type) else "sc:Text",
            "source": {"fileObject": {"@id": path}, "extract": {"column": column.name}},
            **({"isArray": True, "arrayShape": ANY_LENGTH} if listed else {}),
        }
