"""Train two tiny classifiers and a tiny causal model and predict with them, as authors would: ``transformers`` alone.

``independent_checkpoints.py FOLDER``: reads ``data.json`` (``names`` of labels, ``texts`` and ``labels`` by id), writes
folders ``sigmoid``, ``softmax``, ``causal`` and ``chat``, and ``predictions.json``: probabilities, and written answers.
"""

import json
import sys
from pathlib import Path

import torch
import transformers as hf
from tokenizers import Tokenizer, models, pre_tokenizers

FOLDER = Path(sys.argv[1])
DATA = json.loads((FOLDER / "data.json").read_text())
NAMES, TEXTS, LABELS = DATA["names"], DATA["texts"], DATA["labels"]
PROMPT = "Post: {} Label:"


def tokenizer():
    words = {word for text in TEXTS.values() for word in text.split()} | {"Post:", "Label:", ";"} | {*NAMES}
    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[EOS]", *sorted(words)])}
    plain = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "eos_token": "[EOS]"}
    names = ["input_ids", "attention_mask"]
    return hf.PreTrainedTokenizerFast(tokenizer_object=plain, model_max_length=256, model_input_names=names, **special)


def fit(model, steps, **batch):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    return model.eval()


def classifier(name, tokens):
    kind = "multi_label_classification" if name == "sigmoid" else None
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    # else 150 steps are too few for 15 independent labels
    sizes |= {"initializer_range": 0.1, "hidden_dropout_prob": 0.0}
    named = {"id2label": dict(enumerate(NAMES)), "label2id": {n: k for k, n in enumerate(NAMES)}, "problem_type": kind}
    config = hf.BertConfig(vocab_size=len(tokens), pad_token_id=0, **sizes, **named)
    truth = torch.tensor([[float(n in found) for n in NAMES] for found in LABELS.values()])
    truth = truth if kind else truth.argmax(1)
    batch = tokens(list(TEXTS.values()), padding=True, return_tensors="pt")
    fit(hf.BertForSequenceClassification(config), 150, **batch, labels=truth).save_pretrained(FOLDER / name)
    tokens.save_pretrained(FOLDER / name)


def causal(tokens):
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    special = {"pad_token_id": 0, "eos_token_id": 2, "bos_token_id": None}
    model = hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=len(tokens), max_position_embeddings=256, **sizes, **special))
    whole = [f"{PROMPT.format(TEXTS[i])} {' ; '.join(LABELS[i])} [EOS]" for i in TEXTS]
    batch = tokens(whole, padding=True, padding_side="right", return_tensors="pt")
    targets = batch["input_ids"].clone()
    for row, i in zip(targets, TEXTS, strict=True):
        row[: len(tokens(PROMPT.format(TEXTS[i]))["input_ids"])] = -100
    targets[batch["attention_mask"] == 0] = -100
    fit(model, 80, **batch, labels=targets)
    for name, template in {"causal": None, "chat": "{{ messages[0].content }}"}.items():
        model.save_pretrained(FOLDER / name)
        tokens.chat_template = template
        tokens.save_pretrained(FOLDER / name)


def probabilities(name):
    tokens = hf.AutoTokenizer.from_pretrained(FOLDER / name)
    model = hf.AutoModelForSequenceClassification.from_pretrained(FOLDER / name)
    rows = {i: model(**tokens(text, return_tensors="pt")).logits[0] for i, text in TEXTS.items()}
    return {i: (row.sigmoid() if name == "sigmoid" else row.softmax(-1)).tolist() for i, row in rows.items()}


def written(name):
    tokens, model = (auto.from_pretrained(FOLDER / name) for auto in (hf.AutoTokenizer, hf.AutoModelForCausalLM))
    answers = {}
    for i, text in TEXTS.items():
        asked = tokens(PROMPT.format(text), return_tensors="pt")
        whole = model.generate(**asked, do_sample=False, max_new_tokens=12)
        answers[i] = tokens.decode(whole[0, asked["input_ids"].shape[1] :], skip_special_tokens=True)
    return answers


torch.manual_seed(3)
words = tokenizer()
classifier("sigmoid", words)
classifier("softmax", words)
causal(words)
with torch.inference_mode():
    told = {"sigmoid": probabilities("sigmoid"), "softmax": probabilities("softmax"), "causal": written("causal")}
(FOLDER / "predictions.json").write_text(json.dumps(told))
