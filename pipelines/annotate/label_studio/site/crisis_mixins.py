"""Restrict access to the embedded Label Studio's projects to members of their organization.

There are two checks, because either alone leaves gaps (found by requesting every URL of Label Studio 1.23.2 with
another organization's ids). Most views check the permission on the requested object. Before any view, the ids in a
request are checked against the sender's organizations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

IN_PATH = re.compile(r"/(projects|tasks|annotations|drafts|views)/(\d+)")
# Each kind of object: its module, its model and the lookup path to its organization.
MODELS = {
    "project": ("projects.models", "Project", "organization"),
    "task": ("tasks.models", "Task", "project__organization"),
    "annotation": ("tasks.models", "Annotation", "task__project__organization"),
    "draft": ("tasks.models", "AnnotationDraft", "task__project__organization"),
    "view": ("data_manager.models", "View", "project__organization"),
}


def _is_member(self: Any, user: Any) -> bool:
    user.project = self  # like Label Studio's own mixin
    return self.organization_id is not None and bool(self.organization.has_permission(user))


def _names_own(self: Any, request: Any, view: Any) -> bool:
    members = import_module("organizations.models").OrganizationMember.objects
    own = {
        None,
        *members.filter(user_id=request.user.pk, deleted_at__isnull=True).values_list("organization", flat=True),
    }
    return all(_organization(kind, number) in own for kind, number in _named(request))


def _named(request: Any) -> Iterator[tuple[str, int]]:
    """Yield the objects named in a request's path, query and body."""
    for plural, number in IN_PATH.findall(request.path):
        yield plural.removesuffix("s"), int(number)
    body = request.data if hasattr(request.data, "get") else {}
    for kind in MODELS:
        for value in (*request.query_params.getlist(kind), body.get(kind)):
            if isinstance(value, int) or (isinstance(value, str) and value.strip().isdecimal()):
                yield kind, int(value)


def _organization(kind: str, number: int) -> int | None:
    module, name, way = MODELS[kind]
    numbers = getattr(import_module(module), name).objects.filter(pk=number).values_list(way, flat=True)
    return next((int(each) for each in numbers if each is not None), None)


ProjectMixin = type("ProjectMixin", (import_module("projects.mixins").ProjectMixin,), {"has_permission": _is_member})
# Nearly every view has this permission class, which checks only the object. The views already refer to the class while
# the settings are loading, so a method is added to it instead of replacing it.
import_module("core.api_permissions").HasObjectPermission.has_permission = _names_own
