"""A causal language model that is fine-tuned to generate the labels as JSON (CRADLE 5.2, F)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from pipelines.core.config.base import Fraction, Positive, Section
from pipelines.core.config.models import ExampleWeights
from pipelines.models.kind import Based, Desk, Job, Say, Serving, later
from pipelines.models.prediction import Predictor

if TYPE_CHECKING:
    from pipelines.core.config.params import Params
    from pipelines.core.config.settings import Settings

log = logging.getLogger(__name__)


class Evaluation(Section):
    """The tokens of prompt and answer together, and of the answer, in an evaluation with the labellers' prompt."""

    max_length: Positive
    max_new_tokens: Positive


class Sft(Based):
    """A causal language model that is fine-tuned to generate the labels as JSON.

    ``evaluation`` has it scored as CRADLE's were (F): with the labellers' prompt and its examples, answered freely, by
    the papers' rules. Without it, and wherever the model is served, it is asked with the short prompt that it was tuned
    on, and gives the most probable of all valid answers.

    The last three fields fit a recipe to fewer or smaller GPUs than the paper's. ``quantization`` and ``optimizer``
    change what is computed (:attr:`deviations`) and run on one GPU; ``offload`` changes only where, on any number.

    Args:
        quantization: ``nf4`` holds the frozen base in 4 bits (QLoRA, Dettmers et al. 2023); needs ``tuning: lora``.
        offload: ``cpu`` holds weights, gradients and the optimiser's state in the memory of the host.
        optimizer: ``adamw8bit`` holds AdamW's two moments in 8 bits (Dettmers et al. 2022).
    """

    large: ClassVar[bool] = True
    packable: ClassVar[str | None] = None
    max_new_tokens: Positive = 128  # ours: an answer has at most four labels (CRADLE T2), about 45 tokens
    tuning: Literal["full", "lora"]
    rank: Positive | None = None
    alpha: Positive | None = None
    dropout: Fraction | None = None
    batch: Positive
    accumulation: Positive
    max_length: Positive
    learning_rate: Annotated[float, Field(gt=0)]
    warmup: Fraction
    weight_decay: Annotated[float, Field(ge=0)]
    epochs: Positive
    packing: bool
    weights: ExampleWeights = "equal"
    evaluation: Evaluation | None = None
    quantization: Literal["nf4"] | None = None
    offload: Literal["cpu"] | None = None
    optimizer: Literal["adamw", "adamw8bit"] = "adamw"

    @model_validator(mode="after")
    def _consistent(self) -> Sft:
        if self.quantization and self.tuning == "full":
            raise ValueError("quantization needs tuning: lora, because weights of 4 bits cannot be trained")
        if self.single and self.offload:
            raise ValueError("offload: cpu is instead of quantization: nf4 and optimizer: adamw8bit, not besides")
        return self

    @property
    def single(self) -> bool:
        """Whether the recipe can use only one GPU, because its weights or moments cannot be divided."""
        return self.quantization is not None or self.optimizer == "adamw8bit"

    @property
    def deviations(self) -> tuple[str, ...]:
        """What a recipe for fewer GPUs computes differently from the paper, for the report; usually nothing."""
        quantized = ("base in 4 bits (nf4)",) if self.quantization else ()
        return (*quantized, *(("AdamW in 8 bits",) if self.optimizer == "adamw8bit" else ()))

    @property
    def weighted(self) -> bool:
        return self.weights == "posterior"

    @property
    def libraries(self) -> tuple[str, ...]:
        # accelerate places the weights; jinja2 for chat templates
        adapters = ("peft",) if self.tuning == "lora" else ()
        return ("accelerate", "jinja2", *adapters, *(("bitsandbytes",) if self.quantization else ()))

    def check(self, name: str, *, params: Params, settings: Settings, root: Path, folder: Path) -> None:
        needed = later("kinds.sft.preflight").check(name, params=params, settings=settings, root=root, folder=folder)
        for line in needed.lines():
            log.info(line)

    def fit(self, job: Job[Any], *, say: Say) -> dict[str, Any]:
        training = later("kinds.sft.sft")
        prompt = training.store_prompt(job)
        found: dict[str, Any] = training.fit(job, say=say) | training.calibrate(job)
        return found | {"prompt": prompt}

    def open(self, folder: Path, serving: Serving) -> Predictor:
        from pipelines.models.fitting.generate import Generator

        sizes: dict[str, Any] = {
            "max_length": self.max_length,
            "max_new_tokens": self.max_new_tokens,
            "batch": serving.batch,
        }
        about: dict[str, Any] = {"task": serving.task, "scheme": serving.scheme, "seed": serving.seed}
        return Generator(folder, folder=serving.folder, **about, **{**sizes, **serving.asked})

    def asked(self, desk: Desk) -> dict[str, Any]:
        if self.evaluation is None:
            return {}
        options: dict[str, Any] = later("label_prompts").freely(desk, mode="paper", **self.evaluation.model_dump())
        return options
