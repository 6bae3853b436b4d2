"""Serve the simulated vendors' endpoints beside questions to a model: model lists, files, batch jobs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import orjson

from crisis_corpus_sandbox.vendors.batch_jobs import (
    Batches,
    BatchLine,
    VendorJob,
    anthropic_job,
    anthropic_results,
    google_file,
    google_job,
    openai_file,
    openai_job,
    uploaded,
)
from crisis_corpus_sandbox.vendors.protocols import MADE, Body, Call, Rejected, Sent, name_of

MODELS = ("gpt-5", "gpt-5-mini", "gpt-4.1")
# Those that FigSIM 5.1 and CRADLE 4.1 evaluate, as a gateway before several vLLM servers lists them.
OPEN_MODELS = (
    "meta-llama/Llama-3.2-11B-Vision-Instruct", "Qwen/Qwen3-VL-8B-Instruct", "OpenGVLab/InternVL3_5-8B",
    "meta-llama/Llama-3.1-8B-Instruct", "google/gemma-3-12b-it", "google/gemma-3-27b-it", "Qwen/Qwen2.5-7B-Instruct",
    "Qwen/Qwen2.5-14B-Instruct", "Qwen/Qwen2.5-32B-Instruct", "Qwen/Qwen3-8B", "openai/gpt-oss-20b",
    "openai/gpt-oss-120b",
)  # fmt: skip
# Known to the real vendors once; a request for one of these is answered as they answer now.
RETIRED = frozenset({"claude-2.1", "gemini-1.0-pro", "gpt-4-32k"})
LINES = "application/x-jsonl"
NAME = r"(?P<name>[\w.-]+)"
Service = Callable[[Batches, Call], Sent | None]


def _told(value: Body | None) -> Sent | None:
    return None if value is None else Sent(200, orjson.dumps(value))


def _lines(data: bytes | None, *, name: str) -> list[Body]:
    """Return the requests of a job's file."""
    if data is None:
        raise Rejected(f"No such file: {name}", param="input_file_id")
    try:
        return [orjson.loads(line) for line in data.splitlines() if line.strip()]
    except orjson.JSONDecodeError:
        raise Rejected("The file is not valid JSONL.", param="input_file_id") from None


def _job(find: Callable[[Batches, str], VendorJob | None], tell: Callable[..., Body]) -> Service:

    def answer(batches: Batches, call: Call) -> Sent | None:
        job = find(batches, call.name)
        return _told(tell(batches, job, address=call.address) if job else None)

    return answer


def _content(batches: Batches, call: Call) -> Sent | None:
    data = batches.files.get(call.name)
    return None if data is None else Sent(200, data, content_type=LINES)


def _listed(models: Iterable[str]) -> Service:
    data = [{"id": m, "object": "model", "created": MADE, "owned_by": "sandbox"} for m in models]
    return lambda _, __: _told({"object": "list", "data": data})


_models = _listed(MODELS)


def _healthy(_: Batches, __: Call) -> Sent | None:
    return Sent(200, b"")


def _model(_: Batches, call: Call) -> Sent | None:
    return None if call.model in RETIRED else _told({"id": call.model, "name": f"models/{call.model}"})


def _openai_upload(batches: Batches, call: Call) -> Sent | None:
    data, filename = uploaded(call.body, content_type=call.headers.get("content-type", ""))
    return _told(openai_file(batches.keep(data, prefix="file-"), size=len(data), filename=filename))


def _openai_forget(batches: Batches, call: Call) -> Sent | None:
    deleted = batches.forget(call.name)
    return _told({"id": call.name, "object": "file", "deleted": True} if deleted else None)


def _openai_submit(batches: Batches, call: Call) -> Sent | None:
    body = call.json()
    name = str(body["input_file_id"])
    rows = _lines(batches.files.get(name), name=name)
    endpoint = str(body["endpoint"])
    if any(row["url"] != endpoint for row in rows) or endpoint not in ("/v1/responses", "/v1/chat/completions"):
        raise Rejected("The endpoint of the lines differs from the endpoint of the batch.", param="endpoint")
    lines = [BatchLine(row["custom_id"], row["body"], endpoint.removeprefix("/v1/")) for row in rows]
    job = batches.start(lines, prefix="batch_", files={"input": name, "endpoint": endpoint})
    return _told(openai_job(batches, job, address=call.address))


def _anthropic_submit(batches: Batches, call: Call) -> Sent | None:
    lines = [BatchLine(row["custom_id"], row["params"], "messages") for row in call.json()["requests"]]
    job = batches.start(lines, prefix="msgbatch_")
    return _told(anthropic_job(batches, job, address=call.address))


def _anthropic_results(batches: Batches, call: Call) -> Sent | None:
    job = batches.look(call.name)
    return Sent(200, anthropic_results(job), content_type=LINES) if job and job.state != "running" else None


def _google_upload(batches: Batches, call: Call) -> Sent | None:
    if call.headers.get("x-goog-upload-command") == "start":
        place = f"{call.address}/upload/v1beta/files/{name_of(call.body.decode('utf-8', 'replace'))}"
        return Sent(200, b"{}", headers={"X-Goog-Upload-URL": place, "X-Goog-Upload-Status": "active"})
    name = batches.keep(call.body, prefix="files/")
    told = {"file": google_file(name, size=len(call.body), address=call.address)}
    return Sent(200, orjson.dumps(told), headers={"X-Goog-Upload-Status": "final"})


def _google_submit(batches: Batches, call: Call) -> Sent | None:
    name = str(call.json()["batch"]["inputConfig"]["fileName"])
    rows = _lines(batches.files.get(name), name=name)
    lines = [BatchLine(row["key"], row["request"], "generateContent", call.model) for row in rows]
    job = batches.start(lines, prefix="batches/", model=call.model, files={"input": name})
    return _told(google_job(batches, job, address=call.address))


def _google_cancel(batches: Batches, call: Call) -> Sent | None:
    return _told({} if batches.cancel(call.name) else None)


def _google_forget(batches: Batches, call: Call) -> Sent | None:
    return _told({} if batches.forget(call.name) else None)


# Vendor -> method, path below its address, handler; a handler's None is answered with 404.
SERVICES: Mapping[str, tuple[tuple[str, re.Pattern[str], Service], ...]] = {
    "openai": (
        ("GET", re.compile(r"/v1/models"), _models),
        ("POST", re.compile(r"/v1/files"), _openai_upload),
        ("GET", re.compile(rf"/v1/files/{NAME}/content"), _content),
        ("DELETE", re.compile(rf"/v1/files/{NAME}"), _openai_forget),
        ("POST", re.compile(r"/v1/batches"), _openai_submit),
        ("GET", re.compile(rf"/v1/batches/{NAME}"), _job(Batches.look, openai_job)),
        ("POST", re.compile(rf"/v1/batches/{NAME}/cancel"), _job(Batches.cancel, openai_job)),
    ),
    "azure": (),
    "guard": (("GET", re.compile(r"/v1/models"), _models),),
    "local": (("GET", re.compile(r"/health"), _healthy), ("GET", re.compile(r"/v1/models"), _listed(OPEN_MODELS))),
    "anthropic": (
        ("GET", re.compile(r"/v1/models/(?P<model>[^/:]+)"), _model),
        ("POST", re.compile(r"/v1/messages/batches"), _anthropic_submit),
        ("GET", re.compile(rf"/v1/messages/batches/{NAME}"), _job(Batches.look, anthropic_job)),
        ("POST", re.compile(rf"/v1/messages/batches/{NAME}/cancel"), _job(Batches.cancel, anthropic_job)),
        ("GET", re.compile(rf"/v1/messages/batches/{NAME}/results"), _anthropic_results),
    ),
    "google": (
        ("GET", re.compile(r"/v1beta/models/(?P<model>[^/:]+)"), _model),
        ("POST", re.compile(rf"/upload/v1beta/files(?:/{NAME})?"), _google_upload),
        ("POST", re.compile(r"/v1beta/models/(?P<model>[^/:]+):batchGenerateContent"), _google_submit),
        ("GET", re.compile(r"/v1beta/(?P<name>batches/[\w.-]+)"), _job(Batches.look, google_job)),
        ("POST", re.compile(r"/v1beta/(?P<name>batches/[\w.-]+):cancel"), _google_cancel),
        ("GET", re.compile(r"/v1beta/(?P<name>files/[\w.-]+):download"), _content),
        ("DELETE", re.compile(r"/v1beta/(?P<name>files/[\w.-]+)"), _google_forget),
    ),
}
