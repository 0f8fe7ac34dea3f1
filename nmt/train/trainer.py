"""The state of a training: model, optimizer, position in the data; saved, restored, moved on, validated."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from nmt import runtime
from nmt.config import Config
from nmt.console import log
from nmt.data.batching import Batch, collate, plan
from nmt.data.loader import Loader, Update, prefetch
from nmt.data.prepare import PreparedData
from nmt.errors import CheckpointError, ConfigError, TrainingError
from nmt.evaluate import metrics
from nmt.inference.load import engine_from_models
from nmt.inference.translator import Translator
from nmt.model.build import build_model
from nmt.model.seq2seq import Seq2Seq
from nmt.runs import checkpoint, discovery
from nmt.runs.checkpoint import Progress
from nmt.train.distributed import Group
from nmt.train.loss import cross_entropy
from nmt.train.optim import Schedule, adam, schedule
from nmt.train.run_dir import truncate_after
from nmt.train.step import StepStats, train_step


class Trainer:
    """One run: model, optimizer, data position, and the folder they are saved in. Every rank has one."""

    def __init__(
        self,
        config: Config,
        run: Path,
        prepared: PreparedData,
        device: torch.device,
        dtype: torch.dtype,
        group: Group | None = None,
    ) -> None:
        self.config, self.run, self.prepared, self.device = config, run, prepared, device
        self.group = group or Group()
        self.tokenizer = prepared.tokenizer()
        runtime.seed_everything(config.seed)
        self.model = build_model(config.model, len(self.tokenizer)).to(device)
        most = self.model.max_positions
        if most and config.train.max_length > most:
            raise ConfigError(
                f"train.max_length is {config.train.max_length}, and the model has {most} positions",
                f"set train.max_length={most}, or model.position_encoding=learned(max_positions={config.train.max_length})",
            )
        self.model.compute_dtype = None if dtype == torch.float32 else dtype
        self.ema = copy.deepcopy(self.model).eval() if config.train.ema else None
        self.optimizer = adam(self.model, config.train)
        self.scaler = GradScaler(device.type, enabled=dtype == torch.float16)
        self.schedule: Schedule = schedule(config.train.schedule)
        self.loader = Loader(
            prepared.store("train"), self.tokenizer, config.train, config.seed, self.group.rank, self.group.world_size
        )
        self.largest: int | None = None
        self.samples: list[tuple[str, str]] = []
        self.progress = Progress(precision=str(dtype).removeprefix("torch."))
        self.valid_src, self.valid_tgt = prepared.lines("valid")
        if not self.group.is_main:  # all ranks drew the same weights; what they drop must differ
            self._seed_rank()

    def _seed_rank(self) -> None:
        torch.manual_seed(self.config.seed + 7919 * self.group.rank + 104729 * self.progress.step)

    # ---- saving and restoring

    def save(self) -> None:
        """Write a checkpoint of this moment and delete the ones that are no longer needed; all ranks take part."""
        states = self.group.all_gather(_generators(self.device))
        if self.group.is_main:
            self._write(states)
        self.group.barrier()  # no rank goes on, or ends, before the checkpoint stands

    def _write(self, generators: list[dict[str, Tensor]]) -> None:
        training = {f"raw.{name}": t for name, t in self.model.state_dict().items()} if self.ema else {}
        for (name, _), moments in zip(self.model.named_parameters(), self._moments(), strict=True):
            training |= {f"adam.{name}.{key}": moment for key, moment in moments.items()}
        if self.scaler.is_enabled():
            training["scaler"] = torch.tensor([self.scaler.get_scale(), self.scaler._get_growth_tracker()])
        training |= {f"rng.{rank}.{kind}": t for rank, kinds in enumerate(generators) for kind, t in kinds.items()}
        weights = (self.ema or self.model).state_dict()
        checkpoint.save(self.run, self.progress, weights, training, self.tokenizer.checksum)
        checkpoint.prune(self.run, self.config.train.keep_last, self.config.train.keep_best)

    def _moments(self) -> list[dict[str, Tensor]]:
        return [self.optimizer.state[p] for p in self.model.parameters()]

    def start_from(self, path: Path) -> None:
        """Take the weights of another run or checkpoint.

        Raises:
            CheckpointError: it is damaged, or has another tokenizer or other sizes.
        """
        start = discovery.load(path)
        if start.tokenizer.checksum != self.tokenizer.checksum:
            raise CheckpointError(
                f"{path} has another tokenizer than the data is prepared with",
                f"--set tokenizer.model={start.run / 'spm.model'}, which --init-from does by itself",
            )
        try:
            for model in filter(None, (self.model, self.ema)):
                model.load_state_dict(start.model.state_dict())
        except RuntimeError:
            raise CheckpointError(
                f"the weights of {path} do not fit this model", "its sizes must be the same"
            ) from None

    def restore(self) -> bool:
        """Continue from the newest intact checkpoint of the run; False if there is none yet."""
        found = checkpoint.latest_intact(self.run) if self.group.is_main else None
        path = self.group.broadcast(found and found[0])
        if path is None:
            if self.group.is_main:
                truncate_after(self.run, 0)
            return False
        _, weights, training = found or checkpoint.read(path)
        meta = checkpoint.read_meta(path)
        if meta["tokenizer"] != self.tokenizer.checksum:
            raise TrainingError(
                f"{path} was trained with another tokenizer than the data is now prepared with",
                "the corpus or its options have changed since; train a new run",
            )
        self.progress = Progress(**meta["progress"] | {"precision": self.progress.precision})
        raw = {name[4:]: t for name, t in training.items() if name.startswith("raw.")}
        self.model.load_state_dict(raw or weights)
        if self.ema:
            self.ema.load_state_dict(weights)
        for name, parameter in self.model.named_parameters():
            prefix = f"adam.{name}."
            moments = {key[len(prefix) :]: t for key, t in training.items() if key.startswith(prefix)}
            # The step count too: the fused kernel reads it where the parameter is.
            self.optimizer.state[parameter] = {key: t.to(self.device) for key, t in moments.items()}
        if self.scaler.is_enabled() and "scaler" in training:
            scale, growth = training["scaler"].tolist()
            state = self.scaler.state_dict() | {"scale": scale, "_growth_tracker": int(growth)}
            self.scaler.load_state_dict(state)
        self._restore_generators(training)
        if self.group.is_main:
            checkpoint.quarantine(self.run, after=path)
            truncate_after(self.run, self.progress.step, validated=bool(self.progress.scores))
        return True

    def _restore_generators(self, training: dict[str, Tensor]) -> None:
        prefix = f"rng.{self.group.rank}."
        if prefix + "cpu" not in training:  # the run goes on with more ranks than it had
            self._seed_rank()
            return
        torch.set_rng_state(training[prefix + "cpu"])
        if self.device.type == "cuda" and prefix + "cuda" in training:
            torch.cuda.set_rng_state(training[prefix + "cuda"], self.device)

    # ---- training

    def updates(self) -> Iterator[Update]:
        """Yield updates from the present position on, epoch after epoch."""
        stream = self.loader.stream(self.progress.epoch, self.progress.batches_in_epoch)
        return prefetch(stream) if self.device.type == "cuda" else stream

    def update(self, update: Update, total: int) -> StepStats:
        """Make one update and move the position on; `total` is the update at which training is to end.

        Raises:
            TrainingError: not even one pair fits into memory, or see `train_step`.
        """
        step = self.progress.step + 1
        rate = self.schedule(step, total, self.config.model.dim)
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = rate
        stats = self._fitting_step(update)
        if self.ema and not stats.skipped:
            self._update_ema(step)
        self.progress.step = step
        self.progress.epoch, self.progress.batches_in_epoch = update.epoch, update.position
        self.progress.tokens += stats.tokens
        return stats

    def _fitting_step(self, update: Update) -> StepStats:
        """Make the update in one go, or in smaller batches where memory does not suffice: the result is the same."""
        tokens = update.tokens
        if self.loader.sampler:  # each rank knows its own sentences' segmentation only
            tokens = sum(self.group.all_gather(sum(batch.tokens for batch in update.batches)))
        while True:
            micro = [part.to(self.device) for batch in update.batches for part in _parts(batch, self.largest)]
            try:
                return train_step(
                    self.model, micro, self.optimizer, self.config.train,
                    tokens=tokens, scaler=self.scaler, group=self.group,
                )  # fmt: skip
            except MemoryError:
                self._lower_largest(micro)

    def _lower_largest(self, micro: list[Batch]) -> None:
        size = max(batch.tgt_in_BT.numel() for batch in micro)
        if all(len(batch.src_BS) == 1 for batch in micro if batch.tgt_in_BT.numel() == size):
            raise TrainingError(
                f"a single pair of {size} tokens does not fit into memory", "set train.max_length or model.dim lower"
            )
        if self.largest is None:  # say it once
            log("the batches do not fit into memory: they are cut, and their gradients added up, to the same result")
        self.largest = size // 2
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    @torch.no_grad()
    def _update_ema(self, step: int) -> None:
        """Move the averaged weights toward the present ones; early on faster, so that the start is forgotten."""
        assert self.ema is not None
        decay = min(self.config.train.ema, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self.ema.parameters()), list(self.model.parameters()), 1 - decay)

    # ---- validation

    def validate(self, model: Seq2Seq | None = None) -> dict[str, float]:
        """Return `valid_loss` (nats per target token, not smoothed), `valid_bleu`, `valid_chrf`, and the `quality`,
        that of them which is to be maximized.

        Args:
            model: what to validate; None: what this training would save.
        """
        model = (model or self.ema or self.model).eval()
        loss = self._validation_loss(model)
        count = self.config.train.valid_pairs or len(self.valid_src)
        longest = min(self.prepared.meta["max_source_length"], self.config.train.max_length - 1)
        sentences = self.prepared.meta.get("max_sentences_per_line", 1)
        engine = engine_from_models([model], str(self.device), "auto", self.tokenizer.decode)
        translator = Translator(engine, self.tokenizer, self.config, longest, sentences)
        texts = translator.translate(self.valid_src[:count], self.config.train.valid_search)
        self.samples = list(zip(self.valid_src, texts, strict=False))[: self.config.train.num_samples]
        bleu, chrf = (metric(texts, [self.valid_tgt[:count]]).value for metric in (metrics.bleu, metrics.chrf))
        self.model.train()
        quality = {"loss": -loss, "bleu": bleu, "chrf": chrf}[self.config.train.best_metric]
        return {"valid_loss": loss, "valid_bleu": bleu, "valid_chrf": chrf, "quality": quality}

    @torch.inference_mode()
    def _validation_loss(self, model: Seq2Seq) -> float:
        store = self.prepared.store("valid")
        most = self.model.max_positions or 2**31  # of longer pairs the loss is not defined
        fit = np.flatnonzero(store.lengths_N2.max(1) < most)
        total, tokens = 0.0, 0
        for numbers in plan(store.lengths_N2[fit], self.config.train.batch_tokens, seed=0, epoch=0):
            batch = collate([store[int(i)] for i in fit[numbers]]).to(self.device)
            hidden_ND = model(batch.src_BS, batch.src_mask_BS, batch.tgt_in_BT, batch.target_index_N)
            total += cross_entropy(hidden_ND, model.output_weight_VD, batch.labels_N, smoothing=0.0).item()
            tokens += batch.tokens
        return total / max(1, tokens)

    def judge(self, scores: dict[str, float]) -> bool:
        """Note a validation's results; False when patience has run out."""
        self.progress.scores = scores
        if self.progress.best is None or scores["quality"] > self.progress.best:
            self.progress.best, self.progress.validations_since_best = scores["quality"], 0
        else:
            self.progress.validations_since_best += 1
        patience = self.config.train.patience
        return not patience or self.progress.validations_since_best < patience


def _generators(device: torch.device) -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    return states | ({"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {})


def _parts(batch: Batch, largest: int | None) -> list[Batch]:
    """Cut a batch in halves until none has more than `largest` target positions, or they are single pairs."""
    if largest is None or batch.tgt_in_BT.numel() <= largest or len(batch.src_BS) == 1:
        return [batch]
    return [part for half in batch.split() for part in _parts(half, largest)]
