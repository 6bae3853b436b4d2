"""Create the tables of a new Label Studio (``tables``), or accounts in it (``accounts``).

The script runs in Label Studio's own interpreter, and imports nothing from this project.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

# .invalid never resolves to a real address (RFC 2606).
DOMAIN = "annotators.invalid"


class NoMigrations(dict[str, None]):
    """A value of Django's setting ``MIGRATION_MODULES`` with which no app has migrations."""

    def __contains__(self, app: object) -> bool:
        return True

    def __missing__(self, app: str) -> None:
        return None


def create_tables() -> None:
    """Create Label Studio's database tables from its models, and record every migration as applied.

    The 300 migrations give an empty database the same tables (a test compares them) in 27 CPU s instead of 1. They are
    recorded as applied, so that a later version goes on from there.
    """
    # some models are first imported by the views
    import_module("core.urls")
    settings, migrate = import_module("django.conf").settings, import_module("django.core.management").call_command
    known, settings.MIGRATION_MODULES = settings.MIGRATION_MODULES, NoMigrations()
    migrate("migrate", run_syncdb=True, verbosity=0)
    settings.MIGRATION_MODULES = known
    migrate("migrate", fake=True, verbosity=0)


def create_accounts() -> None:
    """Create an organization, a login and a service account for each annotator's pseudonym.

    Reads ``{pseudonym: password}`` from standard input and prints ``{pseudonym: {email, token}}`` as one JSON line. It
    may be repeated: existing accounts get the new password and keep their token.
    """
    asked = json.loads(sys.stdin.read())
    transaction: ModuleType = import_module("django.db.transaction")
    with transaction.atomic():
        made = {pseudonym: _ensure(pseudonym, password=password) for pseudonym, password in asked.items()}
    sys.stdout.write("\n" + json.dumps(made) + "\n")


def _ensure(pseudonym: str, *, password: str) -> dict[str, str]:
    # The service account owns the organization: an owner cannot be removed, and each user may own only one.
    service = _user(f"{pseudonym}.service@{DOMAIN}", password=None)
    annotator = _user(f"{pseudonym}@{DOMAIN}", password=password)
    organizations = import_module("organizations.models").Organization
    existing = organizations.objects.filter(created_by=service).first()
    home = existing or organizations.create_organization(
        created_by=service, title=pseudonym, legacy_api_tokens_enabled=True
    )
    for user in (service, annotator):
        home.add_user(user)
        user.active_organization = home
        user.save(update_fields=["active_organization"])
    token = import_module("rest_framework.authtoken.models").Token.objects.get_or_create(user=service)[0]
    return {"email": annotator.email, "token": token.key}


def _user(email: str, *, password: str | None) -> Any:
    users = import_module("users.models").User.objects
    user = users.filter(email=email).first() or users.create_user(email=email, password=password)
    if password is not None:
        user.set_password(password)
        user.save(update_fields=["password"])
    return user


if __name__ == "__main__":
    # Like label_studio/server.py: its settings expect the package's folder on the path.
    sys.path.insert(0, str(Path(str(import_module("label_studio").__file__)).parent))
    import_module("django").setup()
    {"tables": create_tables, "accounts": create_accounts}[sys.argv[1]]()
