"""The architectures of the papers' models have the sizes that a plan counts with; nothing is allocated."""

from __future__ import annotations

import pytest
import torch
import transformers

from pipelines.core.config.base_sizes import base_sizes
from pipelines.core.config.label import RemoteLabeller
from pipelines.core.config.params import load
from pipelines.models.pretrained.base_files import quiet
from tests.small_corpus import ROOT


@pytest.mark.parametrize("base", base_sizes())
def test_the_full_configuration_has_the_published_number_of_parameters(base: str) -> None:
    told = base_sizes()[base]
    with torch.device("meta"), quiet():
        model = getattr(transformers, told.model)(getattr(transformers, told.config)(**told.sizes))
    assert sum(weight.numel() for weight in model.parameters()) == told.parameters
    assert all(weight.is_meta for weight in model.parameters())


@pytest.mark.parametrize("profile", ["figsim", "cradle"])
def test_every_base_and_open_model_of_a_paper_has_a_size(profile: str) -> None:
    params = load(ROOT, profile=profile)
    named = {*params.train.models, *params.prompted.models, *params.finetune.models, *params.baselines.models}
    bases = {base for name in named for base, _ in getattr(params.models[name], "bases", ())}
    labellers = {getattr(params.models[name], "labeller", None) for name in named} - {None}
    asked = [params.labellers[name] for name in labellers]
    bases |= {one.model for one in asked if isinstance(one, RemoteLabeller) and one.provider == "local"}
    assert len(bases) >= 8 and bases <= base_sizes().keys()
