"""The state of a training: model, optimiser, position in the data; saved, restored, moved on, validated."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from nmt import checkpoint, metrics, runtime
from nmt import model as models
from nmt.checkpoint import Progress
from nmt.config import Config
from nmt.data.batching import Batch, collate, plan
from nmt.data.loader import Loader
from nmt.data.prepare import Prepared
from nmt.errors import TrainingError
from nmt.loss import cross_entropy
from nmt.model.transformer import Transformer
from nmt.optim import Schedule, adam, schedule
from nmt.train.folder import rewind
from nmt.train.step import StepStats, train_step
from nmt.translate import Translator


class Trainer:
    """One run: model, optimiser, data position, and the folder they are saved in."""

    def __init__(self, config: Config, run: Path, prepared: Prepared, device: torch.device, dtype: torch.dtype) -> None:
        self.config, self.run, self.prepared, self.device = config, run, prepared, device
        self.tokenizer = prepared.tokenizer()
        runtime.seed_everything(config.seed)
        self.model = models.build(config.model, len(self.tokenizer)).to(device)
        self.model.compute_dtype = None if dtype == torch.float32 else dtype
        self.average = copy.deepcopy(self.model).eval() if config.train.ema else None
        self.optimizer = adam(self.model, config.train)
        self.scaler = GradScaler(device.type, enabled=dtype == torch.float16)
        self.schedule: Schedule = schedule(config.train.schedule)
        self.loader = Loader(prepared.store("train"), self.tokenizer, config.train, config.seed)
        self.progress = Progress(precision=str(dtype).removeprefix("torch."))
        self.valid_src, self.valid_tgt = prepared.lines("valid")

    # ---- saving and restoring

    def save(self) -> None:
        """Write a checkpoint of this moment and delete the ones that are no longer needed."""
        training = {f"raw.{name}": t for name, t in self.model.state_dict().items()} if self.average else {}
        for (name, _), moments in zip(self.model.named_parameters(), self._moments(), strict=True):
            training |= {f"adam.{name}.{key}": moment for key, moment in moments.items()}
        if self.scaler.is_enabled():
            training["scaler"] = torch.tensor([self.scaler.get_scale(), self.scaler._get_growth_tracker()])
        training["rng.cpu"] = torch.get_rng_state()
        if self.device.type == "cuda":
            training["rng.cuda"] = torch.cuda.get_rng_state(self.device)
        weights = (self.average or self.model).state_dict()
        checkpoint.save(self.run, self.progress, weights, training, self.tokenizer.checksum)
        checkpoint.prune(self.run)

    def _moments(self) -> list[dict[str, Tensor]]:
        return [self.optimizer.state[p] for p in self.model.parameters()]

    def restore(self) -> bool:
        """Continue from the newest intact checkpoint of the run; False if there is none yet."""
        found = checkpoint.latest_intact(self.run)
        if found is None:
            rewind(self.run, 0)
            return False
        path, weights, training = found
        meta = checkpoint.read_meta(path)
        if meta["tokenizer"] != self.tokenizer.checksum:
            raise TrainingError(
                f"{path} was trained with another tokenizer than the data is now prepared with",
                "the corpus or its options have changed since; train a new run",
            )
        checkpoint.set_aside(self.run, after=path)
        self.progress = Progress(**meta["progress"] | {"precision": self.progress.precision})
        raw = {name[4:]: t for name, t in training.items() if name.startswith("raw.")}
        self.model.load_state_dict(raw or weights)
        if self.average:
            self.average.load_state_dict(weights)
        for name, parameter in self.model.named_parameters():
            prefix = f"adam.{name}."
            moments = {key[len(prefix) :]: t for key, t in training.items() if key.startswith(prefix)}
            # The step count too: the fused kernel reads it where the parameter is.
            self.optimizer.state[parameter] = {key: t.to(self.device) for key, t in moments.items()}
        if self.scaler.is_enabled() and "scaler" in training:
            scale, growth = training["scaler"].tolist()
            state = self.scaler.state_dict() | {"scale": scale, "_growth_tracker": int(growth)}
            self.scaler.load_state_dict(state)
        torch.set_rng_state(training["rng.cpu"])
        rewind(self.run, self.progress.step)
        if self.device.type == "cuda" and "rng.cuda" in training:
            torch.cuda.set_rng_state(training["rng.cuda"], self.device)
        return True

    # ---- training

    def updates(self) -> Iterator[list[Batch]]:
        """Yield updates from the present position on, epoch after epoch."""
        while True:
            yield from self.loader.updates(self.progress.epoch, self.progress.updates_in_epoch)
            self.progress.epoch += 1
            self.progress.updates_in_epoch = 0

    def update(self, micro: list[Batch], total: int) -> StepStats:
        """Make one update and move the position on; `total` is the update at which training is to end."""
        step = self.progress.step + 1
        rate = self.schedule(step, total, self.config.model.dim)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        stats = train_step(
            self.model, [batch.to(self.device) for batch in micro], self.optimizer, self.config, self.scaler
        )
        if self.average and not stats.skipped:
            self._average(step)
        self.progress.step = step
        self.progress.updates_in_epoch += 1
        self.progress.tokens += stats.tokens
        return stats

    @torch.no_grad()
    def _average(self, step: int) -> None:
        """Move the averaged weights towards the present ones; early on faster, so that the start is forgotten."""
        assert self.average is not None
        decay = min(self.config.train.ema, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self.average.parameters()), list(self.model.parameters()), 1 - decay)

    # ---- validation

    def validate(self) -> dict[str, float]:
        """Return `valid_loss` (nats per target token, not smoothed), `valid_bleu`, and the `quality` to maximise."""
        model = (self.average or self.model).eval()
        loss = self._validation_loss(model)
        count = self.config.train.valid_pairs or len(self.valid_src)
        longest = min(self.prepared.meta["longest_source"], self.config.train.max_length - 1)
        translator = Translator(model, self.tokenizer, self.config, self.device, longest)
        found = translator.translate(self.valid_src[:count], self.config.train.valid_search)
        score = metrics.bleu([best[0].text for best in found], self.valid_tgt[:count]).value
        self.model.train()
        quality = score if self.config.train.best == "bleu" else -loss
        return {"valid_loss": loss, "valid_bleu": score, "quality": quality}

    @torch.inference_mode()
    def _validation_loss(self, model: Transformer) -> float:
        store = self.prepared.store("valid")
        total, tokens = 0.0, 0
        for numbers in plan(store.lengths_N2, self.config.train.batch_tokens, seed=0, epoch=0):
            batch = collate([store[int(i)] for i in numbers]).to(self.device)
            hidden_ND = model(batch.src_BS, batch.src_mask_BS, batch.tgt_in_BT, batch.tgt_mask_BT)
            target_N = batch.tgt_out_BT[batch.tgt_mask_BT]
            total += cross_entropy(hidden_ND, model.output_weight_VD, target_N, smoothing=0.0).item()
            tokens += batch.tokens
        return total / tokens

    def judge(self, scores: dict[str, float]) -> bool:
        """Note a validation's results; False when patience has run out."""
        self.progress.scores = scores
        if self.progress.best is None or scores["quality"] > self.progress.best:
            self.progress.best, self.progress.bad_validations = scores["quality"], 0
        else:
            self.progress.bad_validations += 1
        patience = self.config.train.patience
        return not patience or self.progress.bad_validations < patience
