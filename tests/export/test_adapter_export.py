"""An exported LoRA adapter, loaded on its base as its card says, gives the registered logits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from peft import PeftModel

from pipelines.registry.packaging.register import put
from pipelines.release.export import model_folder
from tests.registry import small_registry
from tests.registry.packs import NAME
from tests.registry.test_adapter_served import REVISION, Adapted, made, plain

pytestmark = pytest.mark.faults
__all__ = ["made"]


def test_an_adapter_is_exported_alone_and_found_on_its_base(made: Adapted, small: Path, tmp_path: Path) -> None:
    with small_registry.opened(small) as context:
        put(NAME, made.saved, context=context, who="tester", why="a test")
        model_folder.run(NAME, 1, repo="my-lab/adapter", to=tmp_path / "out", context=context)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"adapter_model.safetensors", "adapter_config.json", "prompt.json"} <= names and "base" not in names
    head = yaml.safe_load((tmp_path / "out" / "README.md").read_text().split("---\n")[1])
    assert (head["library_name"], head["base_model"], head["base_model_relation"]) == ("peft", "team/base", "adapter")
    assert REVISION in (tmp_path / "out" / "adapter_config.json").read_text()
    [code] = re.findall(r"```python\n(.*?)```", (tmp_path / "out" / "README.md").read_text(), re.DOTALL)
    loaded: dict[str, Any] = {}
    # as the card says, of the folder instead of the repository
    exec(code.replace("my-lab/adapter", str(tmp_path / "out")), loaded)
    assert f'revision="{REVISION}"' in code and loaded["reader"].chat_template
    ids = torch.arange(5, 25).unsqueeze(0)
    with torch.no_grad():
        found = loaded["model"].float()(input_ids=ids).logits
        expected = PeftModel.from_pretrained(plain(made), str(made.tuned))(input_ids=ids).logits
        base = plain(made)(input_ids=ids).logits
    assert torch.allclose(found, expected, atol=1e-5) and not torch.allclose(found, base, atol=1e-5)
