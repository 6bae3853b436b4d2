"""Check approvals, and try the credentials of sources and providers with the cheapest call of each."""

from __future__ import annotations

from datetime import date
from http import HTTPStatus

from pipelines.collect.month import Window
from pipelines.config.collect import SourceName
from pipelines.config.label import Api, Consent, RemoteLabeller, on_this_machine
from pipelines.config.models import PromptedModel, WithRationales
from pipelines.config.params import Params
from pipelines.doctor.deployment import Deployment
from pipelines.doctor.finding import Finding, failure, of_error, ok, warning
from pipelines.errors import SourceNotApproved
from pipelines.extract.ocr import GOOGLE_VISION
from pipelines.llm.addresses import ADDRESSES
from pipelines.llm.capabilities import deprecated
from pipelines.llm.client import NO_KEY
from pipelines.llm.retirements import retirement


def sources(params: Params) -> list[SourceName]:
    """Return the sources of posts to check: those of the corpora and, if approved, Reddit, which the sweep asks."""
    approved: set[SourceName] = {"reddit"} if params.sources["reddit"].approval else set()
    return sorted({name for corpus in params.corpora.values() for name in corpus.sources} | approved)


def labellers(params: Params) -> dict[str, RemoteLabeller]:
    """Return the remote labellers in use: those that vote, and those that a trained or prompted model queries."""
    models = [params.models[n] for n in (*params.prompted.models, *params.train.models, *params.baselines.models)]
    asked = {model.labeller for model in models if isinstance(model, PromptedModel | WithRationales)}
    named = {name: params.labellers[name] for name in sorted({*params.votes.labellers, *asked})}
    return {name: labeller for name, labeller in named.items() if isinstance(labeller, RemoteLabeller)}


def approval(deployment: Deployment, name: SourceName) -> Finding:
    """Check that ``params.yaml`` has an approval to read a source of posts, and for how long."""
    source = deployment.params.sources[name]
    source.check(name, today=deployment.now.date())
    if not source.live or source.expires is None:
        return ok("ethics approval on record; its terms need no other")
    return _until(deployment, source.expires, what="approval", key=f"sources.{name}.expires")


def recipients(params: Params) -> list[str]:
    """Return the providers to which posts or images are sent: of labellers and moderators in use, and of remote OCR."""
    pictures = any(corpus.content == "images" for corpus in params.corpora.values())
    engines = {params.images.ocr.engine} & {GOOGLE_VISION} if pictures else set()
    audited = {params.moderators[name].provider for names in params.moderation.systems.values() for name in names}
    return sorted({labeller.provider for labeller in labellers(params).values()} | audited | engines)


def consent(deployment: Deployment, name: str) -> Finding:
    """Check that ``params.yaml`` lets a provider receive posts or images, and for how long."""
    if name != GOOGLE_VISION and on_this_machine(deployment.settings.endpoint(name).url):
        return ok("on this machine, needs no consent")
    given = deployment.params.consents.get(name, Consent())
    given.check(name, today=deployment.now.date())
    return _until(deployment, given.expires or deployment.now.date(), what="consent", key=f"consents.{name}.expires")


def _until(deployment: Deployment, expires: date, *, what: str, key: str) -> Finding:
    days = (expires - deployment.now.date()).days
    if days <= deployment.limits.expires_days:
        return warning(
            f"the {what} ends on {expires}, in {days} days", fix=f"Renew the {what}, then set {key} in params.yaml."
        )
    return ok(f"until {expires}")


def source(deployment: Deployment, name: SourceName) -> Finding:
    """Test a source of posts: request one post of Reddit or an empty page of Arctic Shift, or list the dump files."""
    params, settings = deployment.params, deployment.settings
    try:
        params.sources[name].check(name, today=deployment.now.date())
    except SourceNotApproved:
        return warning("not tried, because it is not approved", fix=f"See the check 'approval {name}'.")
    subreddits = [s for corpus in params.corpora.values() if name in corpus.sources for s in corpus.subreddits]
    subreddits = subreddits or [s for corpus in params.corpora.values() for s in corpus.subreddits]
    if name == "reddit":
        return _reddit(deployment, subreddits[0])
    if name == "arctic_shift":
        from pipelines.collect.sources.arctic_shift import ArcticShiftSource

        ArcticShiftSource(settings, params=params.arctic_shift).ping(subreddits[0])
        return ok("answers")
    from pipelines.collect.sources.dump import DumpSource, expected_digest

    dumps = DumpSource(settings.dumps, params=params.dump)
    files = {path for window in _windows(deployment) for path in dumps.files(window, subreddits=subreddits)}
    for path in files:
        expected_digest(path)
    return ok(f"{len(files)} files with a checksum")


def _reddit(deployment: Deployment, subreddit: str) -> Finding:
    from pipelines.collect.sources.reddit import RedditSource
    from pipelines.collect.sources.service import SubredditClosed

    try:
        RedditSource(deployment.settings, params=deployment.params.reddit).newest(subreddit)
    except SubredditClosed as error:
        return of_error(error, status="warning")
    return ok("the credentials are accepted")


def _windows(deployment: Deployment) -> list[Window]:
    """Return the last month of each corpus that is collected from dumps; without one the first."""
    corpora = [corpus for corpus in deployment.params.corpora.values() if "dump" in corpus.sources]
    return [Window.from_key(corpus.last_month or corpus.first_month) for corpus in corpora]


def labeller(deployment: Deployment, name: str, *, seconds: float) -> Finding:
    """Check that a remote labeller's model is not retired, and that its provider answers at no cost."""
    asked, today = labellers(deployment.params)[name], deployment.now.date()
    endpoint = deployment.settings.endpoint(asked.provider)
    variable = f"CORPUS_{asked.provider.upper().replace('-', '_')}"
    if endpoint.url is None and not endpoint.key.get_secret_value():
        return failure("no key is set", fix=f"Set {variable}_KEY.")
    notice = retirement(asked.model, api=deployment.params.providers[asked.provider].api, url=endpoint.url)
    retired = notice is not None and notice.retired <= today
    found = ok("retired") if retired else _answering(deployment, asked, name=name, seconds=seconds)
    if notice is None or found.status != "ok":
        return found
    fix = f"Set {variable}_URL to a host that serves it, or add a labeller of another name for {notice.successor}."
    return (failure if retired else warning)(f"{asked.model} {notice.told(today=today)}", fix=fix)


def _answering(deployment: Deployment, asked: RemoteLabeller, *, name: str, seconds: float) -> Finding:
    """Request a labeller's model, or its provider's list of models."""
    import requests

    api, endpoint = deployment.params.providers[asked.provider].api, deployment.settings.endpoint(asked.provider)
    key, variable = endpoint.key.get_secret_value(), f"CORPUS_{asked.provider.upper().replace('-', '_')}"
    path, headers = _request(api, model=asked.model, key=key or NO_KEY)
    address = f"{(endpoint.url or ADDRESSES[api]).rstrip('/')}{path}"
    with requests.Session() as session:
        session.trust_env = False
        try:
            answer = session.get(address, headers=headers, timeout=seconds, allow_redirects=False)
            known = not path.endswith("/models") or asked.model in {one["id"] for one in answer.json()["data"]}
        except (ValueError, KeyError, TypeError):
            known = answer.status_code != HTTPStatus.OK
        except requests.RequestException as error:
            return failure(f"the provider does not answer ({type(error).__name__})", fix=f"Check {variable}_URL.")
    if answer.status_code == HTTPStatus.NOT_FOUND or not known:
        return _retired(asked.model, name=name, found="the provider has no model")
    if answer.status_code != HTTPStatus.OK:
        fix = f"Check {variable}_KEY, {variable}_URL and the account's quota."
        return failure(f"the provider answers HTTP {answer.status_code}", fix=fix)
    if deprecated(asked.model, api=api):
        found = _retired(asked.model, name=name, found="the provider will retire model")
        return warning(found.found, fix=found.fix)
    return ok(f"the provider serves {asked.model}")


def _retired(model: str, *, name: str, found: str) -> Finding:
    return failure(f"{found} {model}", fix=f"Set labellers.{name}.model in catalogue.yaml to a model that it serves.")


def _request(api: Api, *, model: str, key: str) -> tuple[str, dict[str, str]]:
    """Return path and headers; servers of OpenAI's protocol have a list of models, some no page of one model."""
    if api == "openai":
        return "/models", {"Authorization": f"Bearer {key}"}
    if api == "anthropic":
        return f"/v1/models/{model}", {"x-api-key": key, "anthropic-version": "2023-06-01"}
    return f"/v1beta/models/{model}", {"x-goog-api-key": key}
