"""The model card: what `nmt info` prints of a run, and its README.md in the form of the Hugging Face hub."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.config import ModelConfig
from nmt.errors import NMTError
from nmt.paths import write_text
from nmt.runs.run_info import collect

if TYPE_CHECKING:  # it loads torch
    pass


CARD = "README.md"


MARK = "<!-- Written by nmt from the run's own files; remove this line to keep what you write here. -->"


OPTIONAL_FIELDS = (
    "norm", "activation", "attention_score", "attention_window", "kv_heads", "layer_sharing", "dropout", "attention_dropout",
    "activation_dropout", "tie_embeddings",
)  # fmt: skip
"""Those of a Transformer that are told only where they are not as usual."""


def write_card(run: Path) -> Path | None:
    """Write a run's model card, in the form of the Hugging Face hub; one that a person has made their own stays.

    Raises:
        NMTError: it cannot be written.
    """
    path = run / CARD
    try:
        if path.is_file() and MARK not in path.read_text(encoding="utf-8", errors="replace"):
            return None
        write_text(path, card(collect(run)))
    except OSError as error:
        raise NMTError(f"cannot write {path}: {error.strerror}", "is the run's folder writable?") from None
    return path


def card(found: dict[str, Any]) -> str:
    """Return the model card of what `collect` found: metadata in YAML, then text."""
    import yaml

    results = [
        {
            "task": {"type": "translation", "name": f"Translation {found['source']}-{found['target']}"},
            "dataset": {"name": test["test"], "type": test["test"]},
            "metrics": [
                {"type": score["name"].lower(), "value": round(score["value"], 2), "name": score["name"],
                 "args": {"signature": score["signature"]}}
                for score in test["scores"]
            ],
        }
        for test in found["tests"] if Path(test["model"]).name == found["best"]["checkpoint"]
    ]  # fmt: skip
    metadata = {
        "language": [found["source"], found["target"]],
        "library_name": "nmt",
        "pipeline_tag": "translation",
        "tags": ["translation", found["model"]["arch"]],
        "model-index": [{"name": found["name"], "results": results}],
    }
    head = yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True)
    return f"---\n{head}---\n\n{MARK}\n\n{_render(found)}"


def _render(found: dict[str, Any]) -> str:
    from nmt.templates import render

    return render("card.md", run=found, lines=describe(found))


def describe(found: dict[str, Any]) -> dict[str, list[str]]:
    """Return what `collect` found in words: lines by subject."""
    model, data, training, best = found["model"], found["data"], found["training"], found["best"]
    pairs, dropped = data["pairs"], sum(data["dropped"].values())
    scores = best["validation"]
    lines = {
        "model": [
            f"{model['arch']}, {found['source']} to {found['target']}, {found['parameters'] / 1e6:.1f} M parameters: "
            f"{model['encoder_layers']}+{model['decoder_layers']} layers, width {model['dim']}{_variant(model)}"
        ],
        "tokenizer": [
            f"{found['tokenizer']['kind']}, {found['tokenizer']['pieces']:,} pieces, {_short(found['tokenizer'])}"
        ],
        "data": [
            *(f"{corpus['name']} ({license}), {_short(corpus)}"
              for corpus, license in zip(data["train"], data["licenses"], strict=False)),
            f"{pairs.get('train', 0):,} pairs; {dropped:,} dropped by {', '.join(data['cleaning']) or 'no cleaning'}",
            f"validation: {data['valid'].get('name', '')}, {pairs.get('valid', 0):,} pairs, {_short(data['valid'])}",
        ],
        "training": [
            f"{training['updates']:,} of {training['of']:,} updates of {training['batch_tokens']:,} tokens at most, "
            f"{training['epoch']} whole epochs, {training['tokens'] / 1e6:,.1f} M target tokens, "
            f"{training['hours']:.2f} hours",
            f"{training['schedule']}, {training['precision']}, seed {training['seed']}",
        ],
        "sessions": [
            f"{session['began']}, from update {session['step']:,}: {session['processes']} x {session['device']}, "
            f"{_machine(session['environment'])}, nmt {session['environment']['nmt']}, "
            f"torch {session['environment']['torch']}"
            for session in found["sessions"]
        ],
        "curve": [" ".join(f"{point['valid_bleu']:.1f}" for point in _thinned(found["curve"])) + "  (validation BLEU)"]
        if found["curve"] else [],
        "best": [f"{best['checkpoint']}: " + ", ".join(f"{name} {value:.3f}" for name, value in scores.items())],
        "test": [
            f"{Path(test['model']).name}: {test['test']}, {test['search']}: {score['name']} {score['value']:.1f}"
            + (f" ± {score['confidence']:.1f}" if score.get("confidence") is not None else "")
            + f"  {score['signature']}"
            for test in found["tests"] for score in test["scores"]
        ],
        "disk": [f"{found['bytes'] / 1e6:,.0f} MB, {len(found['checkpoints'])} checkpoints"],
    }  # fmt: skip
    return {name: entries for name, entries in lines.items() if entries}


def _variant(model: dict[str, Any]) -> str:
    """Tell a Transformer's kind, and every option that is not as usual."""
    if model["arch"] != "transformer":
        return ""
    text = (
        f", {model['heads']} heads, feed-forward {model['ffn_dim']}, {model['norm_position']}-norm, "
        f"{model['position_encoding']} positions"
    )
    usual = asdict(ModelConfig())
    return text + "".join(f", {name}={model[name]}" for name in OPTIONAL_FIELDS if model[name] != usual[name])


def _thinned(points: list[dict[str, Any]], most: int = 16) -> list[dict[str, Any]]:
    """Return at most so many points, the last among them."""
    points = [point for point in points if "valid_bleu" in point]
    return points[:: -max(1, -(-len(points) // most))][::-1]


def _machine(found: dict[str, Any]) -> str:
    gpus = found.get("gpus") or []
    return gpus[0] if gpus else f"{found['processor']}, {found['cores']} cores"


def _short(entry: dict[str, Any]) -> str:
    return f"sha256 {str(entry.get('sha256', ''))[:12]}"
