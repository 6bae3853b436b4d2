"""Pack many conversations into one row of tokens, and compute their common instruction once.

A row is the common prefix followed by each conversation's own tail: its post and its answer. A tail attends to the
prefix and itself, at the positions of an unpacked conversation, and never to another tail, so that loss and gradients
equal those of single conversations (SPEC 2.4, trap 4). There is no padding. CRADLE's instruction is longer than most of
its posts, so that less than half of the tokens is left to compute.

The samples of an optimiser step are chosen first and packed afterwards: packing changes the speed of a recipe, not the
recipe.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from pipelines.models.fitting.posterior import common

IGNORED = -100  # label that the library's losses ignore
ATTENTION = "tails"
# What FlashAttention 2 computes: these number formats, up to this width of a head, from this generation of GPUs.
FLASH, FLASH_WIDTH, FLASH_DEVICE = (torch.float16, torch.bfloat16), 256, (8, 0)


@dataclass(frozen=True)
class TokenizedSample:
    """One tokenised conversation; the last ``answer`` of its ``ids`` (at least one) are the tokens to learn.

    ``weight`` multiplies its loss.
    """

    ids: tuple[int, ...]
    answer: int
    weight: float = 1.0


@dataclass(frozen=True)
class PackingPlan:
    """Which samples are packed into which input row, for every step of every epoch.

    Args:
        rows: number of rows in one step of one process; equal for all, so that every process has the same work.
        steps: ``steps[epoch][step][process][row]`` are positions of samples; a row may be empty.
    """

    rows: int
    steps: tuple[tuple[tuple[tuple[tuple[int, ...], ...], ...], ...], ...]


def shared(samples: Sequence[TokenizedSample]) -> int:
    """Return the length in tokens of the samples' common prefix, which ends at least one token before each answer."""
    least = min((len(s.ids) - s.answer for s in samples), default=1) - 1
    return common([s.ids[:least] for s in samples]) if least > 0 else 0


def row(samples: Sequence[TokenizedSample], *, shared: int) -> dict[str, Any]:
    """Return the input tensors of one row, into which several samples are packed.

    Args:
        samples: at least one, all with the same first ``shared`` tokens.

    Returns:
        ``input_ids``, ``position_ids`` and ``labels`` (:data:`IGNORED` outside the answers, not shifted), int64 (1,
        tokens), and ``segments``: the length of the prefix and of each tail.
    """
    tails = [s.ids[shared:] for s in samples]
    ids = [*samples[0].ids[:shared], *(token for tail in tails for token in tail)]
    places = [*range(shared), *(shared + at for tail in tails for at in range(len(tail)))]
    labels = [IGNORED] * shared
    for sample, tail in zip(samples, tails, strict=True):
        labels += _labels(sample, len(tail))
    return {
        "input_ids": torch.tensor([ids]),
        "position_ids": torch.tensor([places]),
        "labels": torch.tensor([labels]),
        "segments": (shared, *map(len, tails)),
    }


def padded(samples: Sequence[TokenizedSample], *, pad: int) -> dict[str, Any]:
    """Return the tensors of a batch with one padded row per sample, for models that are not :func:`packable`.

    Returns:
        ``input_ids``, ``attention_mask`` and ``labels``, int64 (samples, tokens), padded at the end.
    """
    columns: dict[str, tuple[int, Callable[[TokenizedSample], Sequence[int]]]] = {
        "input_ids": (pad, lambda s: s.ids),
        "attention_mask": (0, lambda s: [1] * len(s.ids)),
        "labels": (IGNORED, lambda s: _labels(s, len(s.ids))),
    }
    return {
        name: pad_sequence([torch.tensor(values(s)) for s in samples], batch_first=True, padding_value=fill)
        for name, (fill, values) in columns.items()
    }


def _labels(sample: TokenizedSample, length: int) -> list[int]:
    """Return the labels of a sample's last ``length`` tokens."""
    return [IGNORED] * (length - sample.answer) + list(sample.ids[-sample.answer :])


def plan(
    lengths: Sequence[int], *, step: int, epochs: int, seed: int, processes: int, room: int | None, batch: int
) -> PackingPlan:
    """Assign samples to the input rows of all steps; each epoch uses every sample once, in a new order.

    Each step takes ``step`` samples, chosen by ``seed`` and the epoch alone, whatever the number of processes. The
    input rows of a step get about equally many tokens, so that no process waits for another.

    Args:
        lengths: the number of tokens of each sample without the common prefix.
        room: the maximum number of tokens in an input row without the common prefix; ``None`` limits the row to
            ``batch`` samples instead.
        batch: the maximum number of samples in an input row if ``room`` is ``None``.
    """
    if room is not None and max(lengths, default=0) > room:
        raise ValueError("a sample is longer than a row")
    orders = [np.random.default_rng([seed, epoch]).permutation(len(lengths)).tolist() for epoch in range(epochs)]
    taken = [[order[i : i + step] for i in range(0, len(order), step)] for order in orders]
    most = max((sum(lengths[i] for i in chosen) for epoch in taken for chosen in epoch), default=0)
    least = step / batch if room is None else most / room
    rows = max(1, math.ceil(least / processes))
    while True:
        made = [[_spread(chosen, lengths=lengths, rows=rows * processes, most=batch if room is None else None)
                 for chosen in epoch] for epoch in taken]  # fmt: skip
        if room is None or all(sum(lengths[i] for i in r) <= room for epoch in made for rows_ in epoch for r in rows_):
            break
        rows += 1
    steps = (tuple(tuple(tuple(rows_[p::processes]) for p in range(processes)) for rows_ in epoch) for epoch in made)
    return PackingPlan(rows, tuple(steps))


def _spread(
    chosen: Sequence[int], *, lengths: Sequence[int], rows: int, most: int | None
) -> tuple[tuple[int, ...], ...]:
    """Return the samples in ``rows`` rows: ``most`` of similar length in each, or, if ``None``, balanced rows."""
    longest = sorted(chosen, key=lambda i: (-lengths[i], i))
    if most is not None:
        cut = [tuple(longest[i : i + most]) for i in range(0, len(longest), most)]
        return (*cut, *[()] * (rows - len(cut)))
    made: list[list[int]] = [[] for _ in range(rows)]
    filled = [(0, number) for number in range(rows)]
    for sample in longest:
        length, number = heapq.heappop(filled)
        made[number].append(sample)
        heapq.heappush(filled, (length + lengths[sample], number))
    return tuple(map(tuple, made))


def packable(model: Any) -> bool:
    """Return whether rows of several samples suit a model: all layers use full attention through ``transformers``."""
    config = model.config
    kinds = getattr(config, "layer_types", None) or ["full_attention"]
    window = getattr(config, "sliding_window", None) if not getattr(config, "layer_types", None) else None
    plain = window is None and getattr(config, "attn_logit_softcapping", None) is None
    return bool(getattr(model, "_supports_attention_backend", False)) and plain and set(kinds) == {"full_attention"}


def attend(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, *, segments: Sequence[int], **options: Any
) -> tuple[Any, None]:
    """Compute causal attention within a row: samples attend to the common prefix and themselves, not to each other.

    Args:
        query: (1, heads, tokens, width), as are ``key`` and ``value``, which may have fewer heads.
        segments: lengths of the prefix and of the tails, as returned by :func:`row`.

    Returns:
        The attention output, (1, tokens, heads, width), and ``None`` in place of attention weights.
    """
    if (form := _flash_form(query)) and not options.get("dropout"):
        each = (tensor.to(form) for tensor in (query, key, value))
        return _attend_at_once(*each, segments=tuple(segments), scale=options.get("scaling")), None
    start, *tails = segments
    begin = [each[:, :, :start] for each in (key, value)]
    parts = [sdpa_attention_forward(module, query[:, :, :start], *begin, None, **options)[0]] if start else []
    at = start
    for length in tails:
        own = slice(at, at + length)
        keys, values = (torch.cat([b, each[:, :, own]], 2) for b, each in zip(begin, (key, value), strict=True))
        mask = torch.ones(length, start + length, dtype=torch.bool, device=query.device).tril(start)[None, None]
        parts.append(sdpa_attention_forward(module, query[:, :, own], keys, values, mask, **options)[0])
        at += length
    return torch.cat(parts, 1), None


def _flash_form(query: Any) -> torch.dtype | None:
    """Return the number format in which FlashAttention can compute, or None: on this device, of this width, in none."""
    if not query.is_cuda or query.shape[-1] % 8 or query.shape[-1] > FLASH_WIDTH:
        return None
    form = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else query.dtype
    return form if form in FLASH and torch.cuda.get_device_capability(query.device) >= FLASH_DEVICE else None


def _attend_at_once(query: Any, key: Any, value: Any, *, segments: tuple[int, ...], scale: float | None) -> Any:
    """Compute :func:`attend` of all samples in one kernel, before which each gets a copy of the prefix's keys."""
    from torch.nn.attention.varlen import varlen_attn

    places, ends, room = sequences(segments, device=query.device)
    heads = query.shape[1] // key.shape[1]
    keys, values = (
        each[0].index_select(1, places).repeat_interleave(heads, 0).transpose(0, 1) for each in (key, value)
    )
    # with fewer queries than keys, the last query sees the last key
    return varlen_attn(
        query[0].transpose(0, 1), keys, values, *ends, *room, scale=scale, window_size=(-1, 0)
    )[None]  # fmt: skip


@lru_cache(maxsize=1)
def sequences(segments: tuple[int, ...], *, device: Any) -> tuple[Any, tuple[Any, Any], tuple[int, int]]:
    """Return a row as sequences that attend to themselves: the prefix, if there is one, and the prefix with each tail.

    Args:
        segments: lengths of the prefix and of the tails.

    Returns:
        ``places``: the row's tokens that the sequences' keys are of, int64 (keys,). ``ends``: where the sequences end
        among the queries and among the keys, int32 (sequences + 1,). ``room``: the most queries and keys of one.
    """
    start, *tails = segments
    first = [start] if start else []
    queries, keys = [*first, *tails], [*first, *(start + length for length in tails)]
    stops = [start + sum(tails[:n]) for n in range(len(tails) + 1)]
    places = [*range(start)]
    for begin, end in pairwise(stops):
        places += [*range(start), *range(begin, end)]
    ends = [torch.tensor([0, *accumulate(each)], dtype=torch.int32, device=device) for each in (queries, keys)]
    return torch.tensor(places, device=device), (ends[0], ends[1]), (max(queries), max(keys))


AttentionInterface.register(ATTENTION, attend)
