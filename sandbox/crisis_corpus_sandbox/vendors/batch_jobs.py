"""Simulate the model vendors' files and batch jobs: submit, poll until done, read the results.

A job is done after ``LOOKS`` polls; no clock is involved. Its answers are generated at submission, in the same way as
those of single requests but without transport errors.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from email import message_from_bytes
from email.policy import HTTP
from typing import Any

from crisis_corpus_sandbox.vendors.protocols import MADE, MADE_TEXT, Body, name_of

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
    canceled: bool = False

    @property
    def state(self) -> str:
        """Return the batch job's state: ``canceled``, ``running`` or ``ended``."""
        return "canceled" if self.canceled else "running" if self.looks > 0 else "ended"


@dataclass(slots=True)
class Batches:
    """The files and the batch jobs of one simulated vendor."""

    judge: Judge
    files: dict[str, bytes] = field(default_factory=dict)
    jobs: dict[str, VendorJob] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def keep(self, data: bytes, *, prefix: str) -> str:
        """Store a file at the vendor and return its name."""
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

    def cancel(self, name: str) -> VendorJob | None:
        """Cancel a batch job unless it has ended, and return it, or ``None`` if it does not exist."""
        with self.lock:
            if (job := self.jobs.get(name)) and job.looks > 0:
                job.canceled = True
            return job


def uploaded(body: bytes, *, content_type: str) -> tuple[bytes, str]:
    """Return the content and the name of the file in a multipart form; both are empty if there is none."""
    form = message_from_bytes(f"Content-Type: {content_type}\r\n\r\n".encode() + body, policy=HTTP)
    for part in form.iter_parts() if form.is_multipart() else ():
        if part.get_filename():
            data = part.get_payload(decode=True)
            return (data if isinstance(data, bytes) else b""), str(part.get_filename())
    return b"", ""


def jsonl(rows: Sequence[Any]) -> bytes:
    """Format rows as lines of JSON (UTF-8)."""
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def openai_file(name: str, *, size: int, filename: str = "batch.jsonl") -> Body:
    """Return OpenAI's description of a file."""
    told: Body = {"id": name, "object": "file", "bytes": size, "created_at": MADE, "filename": filename}
    return told | {"purpose": "batch", "status": "processed"}


def openai_job(batches: Batches, job: VendorJob, *, address: str) -> Body:
    """Return OpenAI's description of a batch job; its result files are written when the job has ended."""
    good = [r for r in job.results if r.status < 300]
    bad = [r for r in job.results if r.status >= 300]
    if job.state == "ended":
        for kind, results in (("output", good), ("error", bad)):
            if results and kind not in job.files:
                job.files[kind] = batches.keep(jsonl([_openai_line(r) for r in results]), prefix="file-")
    ended = job.state == "ended"
    return {
        "id": job.name,
        "object": "batch",
        "endpoint": job.files["endpoint"],
        "input_file_id": job.files["input"],
        "completion_window": "24h",
        "status": {"running": "in_progress", "ended": "completed", "canceled": "cancelled"}[job.state],
        "output_file_id": job.files.get("output"),
        "error_file_id": job.files.get("error"),
        "created_at": MADE,
        "request_counts": {"total": len(job.results), "completed": len(good) * ended, "failed": len(bad) * ended},
    }


def _openai_line(result: Result) -> Body:
    response = {"status_code": result.status, "request_id": f"req_{result.custom_id}", "body": result.body}
    return {"id": f"batch_req_{result.custom_id}", "custom_id": result.custom_id, "response": response, "error": None}


def anthropic_job(batches: Batches, job: VendorJob, *, address: str) -> Body:
    """Return Anthropic's description of a batch job."""
    ended, total = job.state != "running", len(job.results)
    bad = sum(r.status >= 300 for r in job.results)
    counts = {"processing": 0 if ended else total, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0}
    if job.state == "ended":
        counts |= {"succeeded": total - bad, "errored": bad}
    elif ended:
        counts["canceled"] = total
    return {
        "id": job.name,
        "type": "message_batch",
        "processing_status": "ended" if ended else "in_progress",
        "request_counts": counts,
        "created_at": MADE_TEXT,
        "expires_at": "2026-01-02T00:00:00Z",
        "ended_at": MADE_TEXT if ended else None,
        "archived_at": None,
        "cancel_initiated_at": MADE_TEXT if job.canceled else None,
        "results_url": f"{address}/v1/messages/batches/{job.name}/results" if ended else None,
    }


def anthropic_results(job: VendorJob) -> bytes:
    """Return the result lines of an Anthropic batch job that has ended."""
    rows = []
    for result in job.results:
        told: Body = {"type": "succeeded", "message": result.body}
        if job.canceled:
            told = {"type": "canceled"}
        elif result.status >= 300:
            told = {"type": "errored", "error": result.body}
        rows.append({"custom_id": result.custom_id, "result": told})
    return jsonl(rows)


def google_file(name: str, *, size: int, address: str) -> Body:
    """Return Google's description of a file."""
    told: Body = {"name": name, "mimeType": "application/jsonl", "sizeBytes": str(size), "state": "ACTIVE"}
    return told | {
        "createTime": MADE_TEXT,
        "updateTime": MADE_TEXT,
        "uri": f"{address}/v1beta/{name}",
        "source": "UPLOADED",
    }


def google_job(batches: Batches, job: VendorJob, *, address: str) -> Body:
    """Return Google's description of a batch job, an operation whose metadata contain the job's state."""
    state = {"running": "BATCH_STATE_RUNNING", "ended": "BATCH_STATE_SUCCEEDED", "canceled": "BATCH_STATE_CANCELLED"}
    told: Body = {"model": job.model, "name": job.name, "state": state[job.state], "createTime": MADE_TEXT}
    told |= {"updateTime": MADE_TEXT, "batchStats": {"requestCount": str(len(job.results))}}
    if job.state == "ended":
        if "output" not in job.files:
            job.files["output"] = batches.keep(jsonl([_google_line(r) for r in job.results]), prefix="files/")
        told["output"] = {"responsesFile": job.files["output"]}
    return {"name": job.name, "metadata": told, "done": job.state != "running"}


def _google_line(result: Result) -> Body:
    if result.status < 300:
        return {"key": result.custom_id, "response": result.body}
    return {"key": result.custom_id, "error": {"code": INVALID_ARGUMENT, "message": result.body["error"]["message"]}}
