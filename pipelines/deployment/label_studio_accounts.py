"""Create an organization, a login and a service account in Label Studio for each annotator's pseudonym.

The script runs in Label Studio's own interpreter. It reads ``{pseudonym: password}`` from standard input and prints
``{pseudonym: {email, token}}`` as one JSON line. It may be repeated: existing accounts get the new password and keep
their token. It imports nothing from this project.
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


def main() -> None:
    """Create the missing organizations and accounts of Label Studio, and print their e-mail addresses and tokens."""
    asked = json.loads(sys.stdin.read())
    _set_up()
    transaction: ModuleType = import_module("django.db.transaction")
    with transaction.atomic():
        made = {pseudonym: _ensure(pseudonym, password=password) for pseudonym, password in asked.items()}
    sys.stdout.write("\n" + json.dumps(made) + "\n")


def _set_up() -> None:
    # Like label_studio/server.py: its settings expect the package's folder on the path.
    sys.path.insert(0, str(Path(str(import_module("label_studio").__file__)).parent))
    import_module("django").setup()


def _ensure(pseudonym: str, *, password: str) -> dict[str, str]:
    # The service account owns the organization: an owner cannot be removed, and each user may own only one.
    service = _user(f"{pseudonym}.service@{DOMAIN}", password=None)
    annotator = _user(f"{pseudonym}@{DOMAIN}", password=password)
    organizations = import_module("organizations.models").Organization
    found = organizations.objects.filter(created_by=service).first()
    home = found or organizations.create_organization(
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
    main()
