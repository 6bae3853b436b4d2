"""Write ``croissant.json``, the machine-readable description of a release's tables (Croissant 1.1, MLCommons)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from pipelines.export.dataset_card import meaning, summary
from pipelines.export.folder import LICENCE

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


def text(
    *,
    facts: Mapping[str, Any],
    repo: str,
    url: str,
    removed: int,
    columns: pa.Schema,
    files: Mapping[str, tuple[str, int, str]],
) -> str:
    """Return the text of ``croissant.json``.

    Args:
        facts: the manifest of the release's package.
        repo: the repository on the Hub.
        url: the address of the repository.
        removed: the number of the release's removal list; each new one begins a new major version, as in SemVer for
            records that leave.
        columns: the columns of the tables.
        files: by split, the path of its table in the folder, its size in bytes and its SHA-256.
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
                "sha256": found,
            }
            for path, size, found in files.values()
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
