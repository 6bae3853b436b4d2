import base64
from contextlib import ExitStack

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import vision

from pipelines.collect.read.confined_engine import open_engine
from pipelines.collect.read.ocr.google_vision import GoogleVision
from pipelines.core.config.collect import Ocr
from pipelines.core.config.label import Consent, ProviderNotConsented
from pipelines.core.errors import DataError, EngineMissing, SourceRefused, SourceThrottled, SourceUnavailable
from tests.json_server import json_server

PARAMS = Ocr(engine="google_vision")
CONSENT = Consent(
    terms="agreement 1", retention_days=0, approved_by="officer", approved_on="2026-01-01", expires="2099-01-01"
)
PICTURE = b"\xff\xd8 stands for a picture"


def word(text, *, after="SPACE", confidence=0.9):
    symbols = [{"text": c, "confidence": confidence} for c in text]
    if after:
        symbols[-1]["property"] = {"detectedBreak": {"type": after}}
    return {"symbols": symbols, "confidence": confidence}


def annotation(*words):
    """An answer in the shape of cloud.google.com/vision/docs/ocr, as one paragraph."""
    pages = [{"width": 640, "height": 480, "blocks": [{"blockType": "TEXT", "paragraphs": [{"words": list(words)}]}]}]
    return {"responses": [{"fullTextAnnotation": {"pages": pages, "text": "not used"}}]}


@pytest.fixture
def google():
    """A loopback server in Google's place and an engine whose unmodified client talks to it."""
    with ExitStack() as servers:

        def start(*answers, patience=20.0):
            requests = []

            def answer(request):
                requests.append((request.path, request.body))
                return answers[min(len(requests), len(answers)) - 1]

            there = {"api_endpoint": servers.enter_context(json_server(answer))}
            client = vision.ImageAnnotatorClient(
                transport="rest", credentials=AnonymousCredentials(), client_options=there
            )
            return GoogleVision(PARAMS, client=client, patience_seconds=patience), requests

        yield start


def failure(status, name):
    return status, {"error": {"code": status, "status": name, "message": "said by the service"}}


def test_reads_words_in_order_and_sends_the_picture_once(google):
    answer = annotation(
        word("Still", after="SPACE"),
        word("not", after="LINE_BREAK"),
        word("awa", after="HYPHEN"),
        word("ke", after=None, confidence=0.8),
        word("~~", confidence=0.2),
    )
    engine, requests = google((200, answer))
    reading = engine.read(PICTURE)
    assert reading.text == "Still not awake"
    assert reading.confidence == round((5 * 0.9 + 3 * 0.9 + 3 * 0.9 + 2 * 0.8) / 13, 4)
    assert reading.engine == engine.identity
    [(path, body)] = requests
    assert path == "/v1/images:annotate"
    assert base64.b64decode(body["requests"][0]["image"]["content"]) == PICTURE
    assert body["requests"][0]["features"][0]["type"] in ("TEXT_DETECTION", 5)


@pytest.mark.parametrize(
    "answer", [{"responses": [{}]}, annotation(word("?!")), annotation(word("haze", confidence=0.3))]
)
def test_a_picture_without_words_reads_as_nothing(google, answer):
    reading = google((200, answer))[0].read(PICTURE)
    assert (reading.text, reading.confidence) == ("", 0.0)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (failure(429, "RESOURCE_EXHAUSTED"), SourceThrottled),
        (failure(401, "UNAUTHENTICATED"), SourceRefused),
        (failure(403, "PERMISSION_DENIED"), SourceRefused),
        (failure(400, "INVALID_ARGUMENT"), SourceRefused),
        (failure(500, "INTERNAL"), SourceUnavailable),
        ((200, {"responses": [{"error": {"code": 3, "message": "Bad image data."}}]}), DataError),
        ((200, {"responses": [{"error": {"code": 13, "message": "Internal."}}]}), SourceUnavailable),
    ],
)
def test_failures_have_their_own_errors_without_the_services_words(google, answer, error):
    with pytest.raises(error) as caught:
        google(answer)[0].read(PICTURE)
    assert "said by the service" not in str(caught.value)


def test_a_service_that_comes_back_is_asked_again(google):
    engine, requests = google(failure(503, "UNAVAILABLE"), (200, annotation(word("hello"))))
    assert engine.read(PICTURE).text == "hello"
    assert len(requests) == 2


def test_a_service_that_stays_away_is_unavailable(google):
    with pytest.raises(SourceUnavailable):
        google(failure(503, "UNAVAILABLE"), patience=0.5)[0].read(PICTURE)


def test_missing_credentials_say_what_to_set(monkeypatch, tmp_path):
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with pytest.raises(EngineMissing, match="GOOGLE_APPLICATION_CREDENTIALS"):
        open_engine(PARAMS, consent=CONSENT)
    with pytest.raises(ProviderNotConsented, match="No item may be sent"):
        open_engine(PARAMS)
