"""Serve the simulated vendors' endpoints beside questions to a model: model lists, files, batch jobs."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from email import message_from_bytes
from email.policy import HTTP
from typing import Any

import orjson

from crisis_corpus_sandbox.vendors.protocols import MADE, MADE_TEXT, Body, Call, Sent, name_of

LOOKS = 2
# google.rpc.Code INVALID_ARGUMENT, the only error that a line of a Gemini job gets here.
INVALID_ARGUMENT = 3


@dataclass(frozen=True, slots=True)
class BatchLine:
    """One request of a batch job; ``kind`` is its API protocol, ``model`` the model in the job's path."""

    custom_id: str
    body: Body
    kind: str
    model: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """The simulated answer to one request of a batch job."""

    custom_id: str
    status: int
    body: Body


# A line and the name of its job -> the answer.
Judge = Callable[[BatchLine, str], Result]


@dataclass(slots=True)
class VendorJob:
    """One batch job at a simulated vendor; ``looks`` is the number of further polls before it ends."""

    name: str
    results: Sequence[Result]
    model: str
    files: dict[str, str]
    looks: int = LOOKS

    @property
    def ended(self) -> bool:
        return self.looks <= 0


@dataclass(slots=True)
class Batches:
    """The files and the batch jobs of one simulated vendor."""

    judge: Judge
    files: dict[str, bytes] = field(default_factory=dict)
    jobs: dict[str, VendorJob] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def keep(self, data: bytes, *, prefix: str) -> str:
        with self.lock:
            name = prefix + name_of(len(self.files), len(data))
            self.files[name] = data
        return name

    def forget(self, name: str) -> bool:
        """Delete a file at the vendor; return whether it existed."""
        with self.lock:
            return self.files.pop(name, None) is not None

    def start(
        self, lines: Sequence[BatchLine], *, prefix: str, model: str = "", files: dict[str, str] | None = None
    ) -> VendorJob:
        """Submit a batch job of these requests; return the job in its initial state."""
        with self.lock:
            name = prefix + name_of(len(self.jobs), len(lines))
            self.jobs[name] = job = VendorJob(name, (), model, files or {})
        job.results = [self.judge(line, name) for line in lines]
        return job

    def look(self, name: str) -> VendorJob | None:
        """Return a batch job by name, or ``None`` if it does not exist; the call counts as a poll."""
        with self.lock:
            if job := self.jobs.get(name):
                job.looks -= 1
            return job


def uploaded(body: bytes, *, content_type: str) -> bytes:
    """Return the content of the file in a multipart form; it is empty if there is none."""
    form = message_from_bytes(f"Content-Type: {content_type}\r\n\r\n".encode() + body, policy=HTTP)
    for part in form.iter_parts() if form.is_multipart() else ():
        if part.get_filename():
            data = part.get_payload(decode=True)
            return data if isinstance(data, bytes) else b""
    return b""


def jsonl(rows: Sequence[Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def openai_job(batches: Batches, job: VendorJob, *, address: str) -> Body:
    """Return OpenAI's description of a batch job; its result files are written when the job has ended."""
    good, bad = ([r for r in job.results if (r.status < 300) == wanted] for wanted in (True, False))
    counts = {"total": len(job.results), "completed": len(good) * job.ended, "failed": len(bad) * job.ended}
    if job.ended:
        for kind, results in (("output", good), ("error", bad)):
            if results and kind not in job.files:
                job.files[kind] = batches.keep(jsonl([_openai_line(r) for r in results]), prefix="file-")
    return {
        "id": job.name,
        "object": "batch",
        "endpoint": job.files["endpoint"],
        "input_file_id": job.files["input"],
        "completion_window": "24h",
        "status": "completed" if job.ended else "in_progress",
        "output_file_id": job.files.get("output"),
        "error_file_id": job.files.get("error"),
        "created_at": MADE,
        "request_counts": counts,
    }


def openai_deleted(name: str) -> Body:
    return {"id": name, "object": "file", "deleted": True}


def _openai_line(result: Result) -> Body:
    response = {"status_code": result.status, "request_id": f"req_{result.custom_id}", "body": result.body}
    return {"id": f"batch_req_{result.custom_id}", "custom_id": result.custom_id, "response": response, "error": None}


def anthropic_job(batches: Batches, job: VendorJob, *, address: str) -> Body:
    """Return Anthropic's description of a batch job."""
    counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
    if job.ended:
        errored = sum(r.status >= 300 for r in job.results)
        counts |= {"succeeded": len(job.results) - errored, "errored": errored}
    else:
        counts["processing"] = len(job.results)
    return {
        "id": job.name,
        "type": "message_batch",
        "processing_status": "ended" if job.ended else "in_progress",
        "request_counts": counts,
        "created_at": MADE_TEXT,
        "expires_at": "2026-01-02T00:00:00Z",
        "ended_at": MADE_TEXT if job.ended else None,
        "archived_at": None,
        "cancel_initiated_at": None,
        "results_url": f"{address}/v1/messages/batches/{job.name}/results" if job.ended else None,
    }


def _anthropic_line(result: Result) -> Body:
    good = result.status < 300
    outcome = {"type": "succeeded", "message": result.body} if good else {"type": "errored", "error": result.body}
    return {"custom_id": result.custom_id, "result": outcome}


def google_job(batches: Batches, job: VendorJob, *, address: str) -> Body:
    """Return Google's description of a batch job, an operation whose metadata contain the job's state."""
    state = "BATCH_STATE_SUCCEEDED" if job.ended else "BATCH_STATE_RUNNING"
    metadata: Body = {"model": job.model, "name": job.name, "state": state, "createTime": MADE_TEXT}
    metadata |= {"updateTime": MADE_TEXT, "batchStats": {"requestCount": str(len(job.results))}}
    if job.ended:
        if "output" not in job.files:
            job.files["output"] = batches.keep(jsonl([_google_line(r) for r in job.results]), prefix="files/")
        metadata["output"] = {"responsesFile": job.files["output"]}
    return {"name": job.name, "metadata": metadata, "done": job.ended}


def _google_line(result: Result) -> Body:
    if result.status < 300:
        return {"key": result.custom_id, "response": result.body}
    return {"key": result.custom_id, "error": {"code": INVALID_ARGUMENT, "message": result.body["error"]["message"]}}


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


def _as_json(value: Body | None) -> Sent | None:
    return None if value is None else Sent(200, orjson.dumps(value))


def _rows(batches: Batches, name: str) -> list[Body]:
    return [orjson.loads(line) for line in batches.files[name].splitlines() if line.strip()]


def _job(tell: Callable[..., Body]) -> Service:
    """Return the handler that polls or cancels a job and describes it."""

    def answer(batches: Batches, call: Call) -> Sent | None:
        job = batches.look(call.name)
        return _as_json(tell(batches, job, address=call.address) if job else None)

    return answer


def _forget(tell: Callable[[str], Body]) -> Service:
    return lambda batches, call: _as_json(tell(call.name) if batches.forget(call.name) else None)


def _content(batches: Batches, call: Call) -> Sent | None:
    data = batches.files.get(call.name)
    return None if data is None else Sent(200, data, content_type=LINES)


def _listed(models: Iterable[str]) -> Service:
    data = [{"id": m, "object": "model", "created": MADE, "owned_by": "sandbox"} for m in models]
    return lambda _, __: _as_json({"object": "list", "data": data})


_models = _listed(MODELS)


def _healthy(_: Batches, __: Call) -> Sent | None:
    return Sent(200, b"")


def _model(_: Batches, call: Call) -> Sent | None:
    return None if call.model in RETIRED else _as_json({"id": call.model, "name": f"models/{call.model}"})


def _openai_upload(batches: Batches, call: Call) -> Sent | None:
    data = uploaded(call.body, content_type=call.headers.get("content-type", ""))
    name = batches.keep(data, prefix="file-")
    file: Body = {"id": name, "object": "file", "bytes": len(data), "created_at": MADE, "filename": "batch.jsonl"}
    return _as_json(file | {"purpose": "batch", "status": "processed"})


def _openai_submit(batches: Batches, call: Call) -> Sent | None:
    name = str(call.json()["input_file_id"])
    lines = [BatchLine(row["custom_id"], row["body"], "responses") for row in _rows(batches, name)]
    job = batches.start(lines, prefix="batch_", files={"input": name, "endpoint": "/v1/responses"})
    return _as_json(openai_job(batches, job, address=call.address))


def _anthropic_submit(batches: Batches, call: Call) -> Sent | None:
    lines = [BatchLine(row["custom_id"], row["params"], "messages") for row in call.json()["requests"]]
    job = batches.start(lines, prefix="msgbatch_")
    return _as_json(anthropic_job(batches, job, address=call.address))


def _anthropic_results(batches: Batches, call: Call) -> Sent | None:
    job = batches.look(call.name)
    if job is None or not job.ended:
        return None
    return Sent(200, jsonl([_anthropic_line(r) for r in job.results]), content_type=LINES)


def _google_upload(batches: Batches, call: Call) -> Sent | None:
    """Open a resumable upload, or receive its bytes (always in one part)."""
    if call.headers.get("x-goog-upload-command") == "start":
        place = f"{call.address}/upload/v1beta/files/{name_of(call.body.decode('utf-8', 'replace'))}"
        return Sent(200, b"{}", headers={"X-Goog-Upload-URL": place, "X-Goog-Upload-Status": "active"})
    name = batches.keep(call.body, prefix="files/")
    file = {"name": name, "mimeType": "application/jsonl", "sizeBytes": str(len(call.body)), "state": "ACTIVE"}
    file |= {"createTime": MADE_TEXT, "updateTime": MADE_TEXT, "uri": f"{call.address}/v1beta/{name}"}
    return Sent(200, orjson.dumps({"file": file | {"source": "UPLOADED"}}), headers={"X-Goog-Upload-Status": "final"})


def _google_submit(batches: Batches, call: Call) -> Sent | None:
    name = str(call.json()["batch"]["inputConfig"]["fileName"])
    lines = [BatchLine(row["key"], row["request"], "generateContent", call.model) for row in _rows(batches, name)]
    job = batches.start(lines, prefix="batches/", model=call.model, files={"input": name})
    return _as_json(google_job(batches, job, address=call.address))


# Vendor -> method, path below its address, handler; a handler's None is answered with 404.
SERVICES: Mapping[str, tuple[tuple[str, re.Pattern[str], Service], ...]] = {
    "openai": (
        ("GET", re.compile(r"/v1/models"), _models),
        ("POST", re.compile(r"/v1/files"), _openai_upload),
        ("GET", re.compile(rf"/v1/files/{NAME}/content"), _content),
        ("DELETE", re.compile(rf"/v1/files/{NAME}"), _forget(openai_deleted)),
        ("POST", re.compile(r"/v1/batches"), _openai_submit),
        ("GET", re.compile(rf"/v1/batches/{NAME}"), _job(openai_job)),
    ),
    "azure": (),
    "guard": (("GET", re.compile(r"/v1/models"), _models),),
    "local": (("GET", re.compile(r"/health"), _healthy), ("GET", re.compile(r"/v1/models"), _listed(OPEN_MODELS))),
    "anthropic": (
        ("GET", re.compile(r"/v1/models/(?P<model>[^/:]+)"), _model),
        ("POST", re.compile(r"/v1/messages/batches"), _anthropic_submit),
        ("GET", re.compile(rf"/v1/messages/batches/{NAME}"), _job(anthropic_job)),
        ("GET", re.compile(rf"/v1/messages/batches/{NAME}/results"), _anthropic_results),
    ),
    "google": (
        ("GET", re.compile(r"/v1beta/models/(?P<model>[^/:]+)"), _model),
        ("POST", re.compile(rf"/upload/v1beta/files(?:/{NAME})?"), _google_upload),
        ("POST", re.compile(r"/v1beta/models/(?P<model>[^/:]+):batchGenerateContent"), _google_submit),
        ("GET", re.compile(r"/v1beta/(?P<name>batches/[\w.-]+)"), _job(google_job)),
        ("GET", re.compile(r"/v1beta/(?P<name>files/[\w.-]+):download"), _content),
        ("DELETE", re.compile(r"/v1beta/(?P<name>files/[\w.-]+)"), _forget(lambda _: {})),
    ),
}
