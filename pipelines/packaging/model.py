"""Save a model package as an MLflow pyfunc model with its code and signature, without pickles.

MLflow runs a script to load the model (MLflow's "models from code"). The script and the code that it imports are stored
with the model version, so that consumers need only the libraries in ``requirements.txt``, not this repository.
"""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from crisis_corpus import integrity
from crisis_corpus.integrity import digest
from crisis_corpus.versions import delete_compiled
from pipelines.config.models import SftModel
from pipelines.errors import RegistryError
from pipelines.packaging import model_code
from pipelines.packaging.model_described import OF_POSTS, Described

if TYPE_CHECKING:
    import pandas as pd
    from mlflow.models import ModelSignature

ARTIFACT, SCRIPT = "pack", "serve.py"
# Kind -> the module that opens it. Modules that are imported by a computed name are additional roots.
OPENERS = {
    "encoder": "model_encoder",
    "sft": "model_sft",
    "text": "model_memes",
    "image": "model_memes",
    "fusion": "model_memes",
}
ENTRY = '''"""Opens the pack that came with this version."""

import gc
import sys

from mlflow.models import set_model

# see `model_opening` of the package that is imported here
compiling, collecting = sys.dont_write_bytecode, gc.isenabled()
sys.dont_write_bytecode = True
gc.disable()
try:
    from {package}.packaging.{opener} import opened
    from {package}.packaging.model_pyfunc import Served
finally:
    sys.dont_write_bytecode = compiling
    if collecting:
        gc.enable()

set_model(Served(opened))
'''


class NotServable(RegistryError):
    """A model package (folder of weights, card and settings) cannot be saved as an MLflow model that loads."""

    message = "The package of model '{name}' cannot be saved as a loadable MLflow model: {detail}."
    remedy = "Remove this cause, then run `corpus register {name}`, which packages the model again."
    exit_code = 65


def save(pack: Path, *, to: Path) -> Path:
    """Write the MLflow model of a model package to the folder ``to``, which must be new or empty; return ``to``."""
    from mlflow import pyfunc

    described = _checked(pack)
    roots = _roots(described)
    with TemporaryDirectory() as scratch:
        code = Path(scratch) / "code"
        code.mkdir()
        package = model_code.write(roots, to=code)
        script = Path(scratch) / SCRIPT
        script.write_text(ENTRY.format(package=package, opener=OPENERS[described.kind]))
        with _importable(code, package=package), warnings.catch_warnings():
            # MLflow warns of missing type hints and examples; the signature is given
            warnings.simplefilter("ignore", UserWarning)
            pyfunc.save_model(
                str(to),
                python_model=str(script),
                artifacts={ARTIFACT: str(pack)},
                code_paths=[str(code / package)],
                signature=signature(described.kind),
                input_example=example(described.kind),
                pip_requirements=model_code.requirements(roots, more=_beside(described)),
            )
    # MLflow has imported the code, and bytecode differs between machines
    delete_compiled(to)
    return to


def example(kind: str) -> pd.DataFrame:
    """Return one input of a registered model of this kind: mild, synthetic, and of no record."""
    import pandas as pd

    if kind in OF_POSTS:
        return pd.DataFrame([{"title": "A title", "body": "This text shows the form of the input. It is no post."}])
    from PIL import Image

    blank = io.BytesIO()
    Image.new("RGB", (64, 48), "white").save(blank, "PNG")
    return pd.DataFrame([{"image": blank.getvalue(), "text": "words of no meme"}])


def signature(kind: str) -> ModelSignature:
    """Return the MLflow signature (input and output columns) of a registered model of this kind.

    ``body`` and ``text`` may be missing, and any cell may be null; a meme's words are then read from its image.
    """
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema
    from mlflow.types.schema import Array

    first, second = (("title", "string"), "body") if kind in OF_POSTS else (("image", "binary"), "text")
    asked = [ColSpec(first[1], first[0]), ColSpec("string", second, required=False)]
    answered = [
        ColSpec(Array(DataType.string), "labels"),
        ColSpec(Array(DataType.double), "probabilities"),
        ColSpec(DataType.boolean, "abstain"),
        ColSpec(Array(DataType.string), "alerts"),
    ]
    return ModelSignature(inputs=Schema(asked), outputs=Schema(answered))


def _checked(pack: Path) -> Described:
    """Check a pack's files and return its description."""
    described = Described.read(pack)
    found = integrity.faults(pack, registered=digest(pack))
    if wrong := [*found["files"], *found["pickle"], *found["card"]]:
        raise NotServable(name=described.name, detail="; ".join(wrong))
    if described.kind not in OPENERS:
        raise NotServable(name=described.name, detail=f"models of kind '{described.kind}' cannot be opened")
    return described


def _roots(described: Described) -> list[str]:
    roots = ["pipelines.packaging.model_pyfunc", f"pipelines.packaging.{OPENERS[described.kind]}"]
    if described.kind not in OF_POSTS:
        roots += [f"pipelines.models.{described.kind}", "pipelines.extract.decode_child"]
    if described.ocr is not None:
        roots.append(f"pipelines.extract.ocr.{described.ocr.engine}")
        roots += ["pipelines.extract.ocr.confined_engine", "pipelines.extract.ocr.ocr_child"]
    return roots


def _beside(described: Described) -> list[str]:
    """Return the libraries that are needed although no module imports them."""
    if not isinstance(described.spec, SftModel):
        return ["mlflow"]
    # accelerate for device_map, jinja2 for chat templates
    adapters = ["peft"] if described.spec.tuning == "lora" else []
    quantized = ["bitsandbytes"] if described.spec.quantization else []
    return ["mlflow", "accelerate", "jinja2", *adapters, *quantized]


@contextmanager
def _importable(code: Path, *, package: str) -> Iterator[None]:
    """Make the code importable while MLflow runs the script to validate it; remove it afterwards."""
    sys.path.insert(0, str(code))
    # bytecode that is written here would be copied, too
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = written
        sys.path.remove(str(code))
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            del sys.modules[name]
