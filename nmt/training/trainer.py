"""The training state: model, optimizer and data position. Saves, restores, updates and validates
it."""

from __future__ import annotations

import copy
import gc
import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from nmt.core import runtime
from nmt.core.config import Config
from nmt.core.console import log
from nmt.core.errors import CheckpointError, TrainingError
from nmt.core.registry import parse
from nmt.data.batching import Batch, collate, plan_batches
from nmt.data.loader import Loader, Update, prefetch
from nmt.data.prepare import PreparedData
from nmt.engines.load import engine_from_models
from nmt.evaluate import line_metrics, metrics
from nmt.evaluate.test_sets import TestSet, reference_streams, sample
from nmt.model.build import build_model
from nmt.model.seq2seq import Seq2Seq
from nmt.model.transformer import Transformer
from nmt.models import discovery
from nmt.runs import checkpoint
from nmt.runs.checkpoint import Progress
from nmt.runs.model_files import check_fits
from nmt.text.tokenizers import tokenizer_file
from nmt.training.adamw import AdamW
from nmt.training.compilation import check_packed_parts, layer_functions, loss_function
from nmt.training.distributed import RankGroup, all_reduce
from nmt.training.optim import Schedule, parse_optimizer, parse_schedule
from nmt.training.packed_update import PackedUpdate, supports_packing
from nmt.training.run_directory import truncate_metrics
from nmt.training.step import AllReduce, PendingStats, batch_loss, divergence_error, train_step
from nmt.training.word_distillation import load_teacher
from nmt.translation.translator import Translator

MIN_OUTPUT_BIAS = -20.0
"""Minimum output bias at the start of fine-tuning. Imported models have -1000 for tokens that they
never generate. It would be most of the loss with label smoothing, and where such a token is a
label."""


@dataclass(eq=False)
class Trainer:
    """Training state of a run: model, optimizer, data position and run directory. Each rank has its
    own.

    It starts with random weights, and seeds the global generators of PyTorch.

    Raises:
        CheckpointError: the teacher cannot be loaded.
        TrainingError: the model does not fit in memory.
        DataError: see `Loader`.
        ConfigError: see `Loader`; or `train.compile` names a part of packed batches, and they are
            padded.
    """

    config: Config
    run: Path
    prepared: PreparedData
    device: torch.device
    dtype: torch.dtype
    """Dtype of the activations."""
    group: RankGroup = field(default_factory=RankGroup)
    samples: list[tuple[str, str, str]] = field(default_factory=list, init=False)
    """Sources, translations and references of the last validation."""
    max_microbatch_tokens: int | None = field(default=None, init=False)
    """Maximum number of target positions of a microbatch; None until a batch does not fit in
    memory. Packed batches are never split."""
    _is_warm: bool = field(default=False, init=False)
    """Whether the packed batches are known to fit in memory on all ranks."""

    def __post_init__(self) -> None:
        hint = "reduce model.dim, model.ffn_dim or the layer counts"
        with runtime.out_of_memory_as(TrainingError("the model does not fit in memory", hint)):
            self._build()

    def _build(self) -> None:
        config = self.config
        options = config.train
        device = self.device
        self.tokenizer = self.prepared.tokenizer()
        self.teacher = load_teacher(config, self.tokenizer, device, self.dtype)
        torch.manual_seed(config.seed)  # after the teacher, whose construction draws random weights
        self.model = self._build_model()
        self.ema = copy.deepcopy(self.model).eval() if options.ema else None
        self.optimizer = _build_optimizer(self.model, config)
        self.all_reduce = self._build_all_reduce()
        self.scaler = GradScaler(device.type, enabled=self.dtype == torch.float16)
        self.schedule: Schedule = parse_schedule(options.schedule)
        self.lr = 0.0
        """The learning rate of the last update."""
        # A CUDA graph needs an optimizer without synchronization.
        is_packed = isinstance(self.optimizer, AdamW)
        is_packed = is_packed and supports_packing(self.model, options, device)
        check_packed_parts(options, packed=is_packed)
        self.loader = self._build_loader(options.batch_tokens, packed=is_packed)
        self.packed_update = self._build_packed_update() if is_packed else None
        precision = str(self.dtype).removeprefix("torch.")
        self.progress = Progress(
            precision=precision, batch_tokens=options.batch_tokens, packed=is_packed
        )
        if not self.group.is_main:  # initial weights are equal on all ranks, dropout must differ
            self._seed_rank()

    @cached_property
    def valid(self) -> TestSet:
        """The validation split."""
        return validation_set(self.prepared)

    def _build_model(self) -> Seq2Seq:
        model = build_model(self.config.model, len(self.tokenizer)).to(self.device)
        model.compute_dtype = None if self.dtype == torch.float32 else self.dtype
        return model

    def _build_loader(self, batch_tokens: int, *, packed: bool) -> Loader:
        return Loader(
            self.prepared.store("train"),
            self.tokenizer,
            replace(self.config.train, batch_tokens=batch_tokens),
            self.config.seed,
            self.group.rank,
            self.group.world_size,
            mix=self.prepared.mix(self.config),
            source_eos=self.config.model.source_eos,
            packed=packed,
        )

    def _build_all_reduce(self) -> AllReduce | None:
        if self.group.world_size == 1:
            return None
        dtype = runtime.torch_dtype(self.config.train.all_reduce_precision)
        return partial(all_reduce, dtype=dtype)

    def _build_packed_update(self) -> PackedUpdate:
        assert isinstance(self.model, Transformer)  # `supports_packing` checks it
        options = self.config.train
        return PackedUpdate(
            self.model,
            self.optimizer,
            options,
            all_reduce=self.all_reduce,
            layers=layer_functions(options, self.device),
            logits_loss=loss_function(options, self.device, packed=True),
        )

    def _seed_rank(self) -> None:
        torch.manual_seed(self.config.seed + 7919 * self.group.rank + 104729 * self.progress.step)

    def save(self) -> None:
        """Save a checkpoint and delete old ones. All ranks must call this.

        Raises:
            TrainingError: the weights are not finite; earlier checkpoints are kept.
        """
        self.check_weights()
        rng_states = self.group.all_gather(_rng_states(self.device))
        if self.group.is_main:
            self._write(rng_states)
        self.group.broadcast(None)  # no rank continues or exits before the checkpoint is complete

    def check_weights(self) -> None:
        """Check that the updates have not made a weight infinite or NaN.

        Raises:
            TrainingError: they have.
        """
        if not self._has_finite_weights():
            raise divergence_error(
                f"the weights are not finite after update {self.progress.step:,}", self.lr
            )

    def _has_finite_weights(self) -> bool:
        is_finite = [parameter.isfinite().all() for parameter in self.model.parameters()]
        return bool(torch.stack(is_finite).all())

    def _write(self, rng_states: list[dict[str, Tensor]]) -> None:
        training = _prefixed("raw.", self.model.state_dict()) if self.ema else {}
        for name, parameter in self.model.named_parameters():
            state = self.optimizer.state[parameter]
            tensors = {key: value for key, value in state.items() if isinstance(value, Tensor)}
            training |= _prefixed(f"optimizer.{name}.", tensors)
        if self.scaler.is_enabled():
            scale = self.scaler.get_scale(), self.scaler._get_growth_tracker()
            training["scaler"] = torch.tensor(scale)
        for rank, states in enumerate(rng_states):
            training |= _prefixed(f"rng.{rank}.", states)
        weights = (self.ema or self.model).state_dict()
        checkpoint.save(self.run, self.progress, weights, training, self.tokenizer.checksum)
        checkpoint.prune(self.run, self.config.train.keep_last, self.config.train.keep_best)

    def init_from(self, path: Path) -> None:
        """Initialize the weights from another run or checkpoint.

        Raises:
            CheckpointError: it is damaged, or its tokenizer or model sizes differ.
        """
        start = discovery.load(path)
        if start.tokenizer.checksum != self.tokenizer.checksum:
            raise CheckpointError(
                f"the tokenizer of {path} differs from the tokenizer of the prepared data",
                f"use --init-from, or --set tokenizer.model={tokenizer_file(start.run)}",
            )
        check_fits(start, path, self.config.model)
        for model in filter(None, (self.model, self.ema)):
            model.load_state_dict(start.model.state_dict())
            if model.output_bias_V is not None:
                model.output_bias_V.data.clamp_(min=MIN_OUTPUT_BIAS)

    def restore(self) -> bool:
        """Restore the latest intact checkpoint of the run. Return False if there is none.

        Rank 0 renames damaged checkpoints and removes the metrics of updates that will be repeated.

        Raises:
            CheckpointError: all checkpoints are damaged.
            TrainingError: the tokenizer of the checkpoint differs from that of the prepared data;
                or its weights are not finite.
        """
        saved = checkpoint.load_latest_intact(self.run) if self.group.is_main else None
        path = self.group.broadcast(saved and saved[0])
        if path is None:
            if self.group.is_main:
                truncate_metrics(self.run, 0, validated=False)
            return False
        weights, training = saved[1:] if saved else checkpoint.load(path)
        meta = checkpoint.read_meta(path)
        if meta["tokenizer"] != self.tokenizer.checksum:
            raise TrainingError(
                f"the tokenizer of {path} differs from the tokenizer of the prepared data",
                "the corpus or its options have changed; start a new run",
            )
        self._restore_progress(Progress(**meta["progress"]))
        self.model.load_state_dict(_without_prefix("raw.", training) or weights)
        if self.ema:
            self.ema.load_state_dict(weights)
        if not self._has_finite_weights():
            raise TrainingError(
                f"the weights in {path} are not finite: training has diverged",
                f"delete {path}, lower the learning rate of"
                f" train.schedule={self.config.train.schedule}, and continue with --resume",
            )
        self._restore_optimizer(training)
        self._restore_rng_states(training)
        if self.group.is_main:
            checkpoint.quarantine(self.run, after=path)
            truncate_metrics(self.run, self.progress.step, validated=bool(self.progress.scores))
        return True

    def _restore_progress(self, saved: Progress) -> None:
        """Continue from a position, with this session's precision and batch size."""
        new = self.progress
        self.progress = saved
        old_batches = saved.batch_tokens or new.batch_tokens, saved.packed
        saved.precision = new.precision
        saved.batch_tokens = new.batch_tokens
        saved.packed = new.packed
        if old_batches != (new.batch_tokens, new.packed):
            batch_tokens, packed = old_batches
            self._convert_position(self._build_loader(batch_tokens, packed=packed))

    def _convert_position(self, old: Loader) -> None:
        """Continue at the same share of the window, after updates with the batches of another
        loader."""
        state = self.progress
        old_total = len(old.window(state.epoch, state.window).batches)
        new_total = len(self.loader.window(state.epoch, state.window).batches)
        state.batches_in_window = state.batches_in_window * new_total // old_total

    def _restore_optimizer(self, training: dict[str, Tensor]) -> None:
        for name, parameter in self.model.named_parameters():
            state = _without_prefix(f"optimizer.{name}.", training)
            if self.progress.step and not state and isinstance(self.optimizer, AdamW):
                raise CheckpointError(
                    f"{self.run} has no optimizer state of {name}",
                    "start a new run with --init-from",
                )
            # The fused kernel requires the step count on the device of the parameter, too.
            self.optimizer.state[parameter] = {key: t.to(self.device) for key, t in state.items()}
        if self.scaler.is_enabled() and "scaler" in training:
            scale, growth = training["scaler"].tolist()
            saved = {"scale": scale, "_growth_tracker": int(growth)}
            self.scaler.load_state_dict(self.scaler.state_dict() | saved)

    def _restore_rng_states(self, training: dict[str, Tensor]) -> None:
        states = _without_prefix(f"rng.{self.group.rank}.", training)
        if "cpu" not in states:  # the run is resumed with more ranks
            self._seed_rank()
            return
        torch.set_rng_state(states["cpu"])
        if self.device.type == "cuda" and "cuda" in states:
            torch.cuda.set_rng_state(states["cuda"], self.device)

    def updates(self) -> Iterator[Update]:
        """Yield updates from the current position, epoch after epoch, without end."""
        while True:
            loader = self.loader
            stream = self._stream()
            is_gpu = self.device.type == "cuda"
            for update in prefetch(stream, self.device) if is_gpu else stream:
                yield update
                if self.loader is not loader:  # its batches are smaller
                    break

    def _stream(self) -> Iterator[Update]:
        state = self.progress
        return self.loader.stream(state.epoch, state.window, state.batches_in_window)

    def update(self, update: Update, last_step: int) -> PendingStats:
        """Make one update and advance the position; the schedule decays until update `last_step`.

        A skipped update of fp16 also moves the averaged weights toward the current ones; knowing of
        it here would require waiting for the GPU.

        Raises:
            TrainingError: a single pair does not fit in memory.
        """
        step = self.progress.step + 1
        self.lr = self.schedule(step, last_step, self.config.model.dim)
        if self.packed_update:
            update = self._compute_packed_gradient(update)
            stats = self.packed_update.apply(self.lr)
        else:
            for param_group in self.optimizer.param_groups:
                param_group["lr"] = self.lr
            stats = self._step_with_oom_retry(update)
        if self.ema:
            self._update_ema(step)
        self.progress.step = step
        self.progress.epoch = update.epoch
        self.progress.window = update.window
        self.progress.batches_in_window = update.batches_in_window
        self.progress.tokens += stats.tokens
        return stats

    def _compute_packed_gradient(self, update: Update) -> Update:
        """Compute the gradient of an update, with smaller batches if they do not fit in memory;
        return the update whose gradient it is."""
        assert self.packed_update is not None
        while True:
            is_failed = False
            try:
                self.packed_update.compute_gradient(update.batches, update.tokens)
            except MemoryError:
                is_failed = True
            # All batches have one shape, so a rank can fail only until its graph is recorded.
            if not self._is_warm:
                state = is_failed, self.packed_update.is_warm
                failed, warm = zip(*self.group.all_gather(state), strict=True)
                self._is_warm = all(warm)
                is_failed = any(failed)
            if not is_failed:
                return update
            self._halve_batches()
            update = next(self._stream())

    def _halve_batches(self) -> None:
        """Continue with batches of half the size, and twice as many for an update."""
        options = self.config.train
        batch_tokens = self.progress.batch_tokens // 2
        if self._is_warm or batch_tokens < options.max_length:
            raise TrainingError(
                f"batches of {self.progress.batch_tokens} tokens do not fit in memory",
                "reduce train.batch_tokens, train.max_length or model.dim",
            )
        log(
            f"the batches do not fit in memory; continuing with {batch_tokens:,} tokens, and twice"
            " as many batches in an update"
        )
        accumulation = 2 * options.grad_accumulation
        options = replace(options, batch_tokens=batch_tokens, grad_accumulation=accumulation)
        self.config = replace(self.config, train=options)
        old = self.loader
        # Free the memory of the update and its graphs.
        self.packed_update = None
        self.optimizer.found_inf = None
        self.optimizer.grad_scale = None
        self.model.zero_grad()
        gc.collect()
        with suppress(RuntimeError):  # a capture that could not end
            torch.cuda.empty_cache()
        self.loader = self._build_loader(batch_tokens, packed=True)
        self.packed_update = self._build_packed_update()
        self.progress.batch_tokens = batch_tokens
        self._convert_position(old)

    def _step_with_oom_retry(self, update: Update) -> PendingStats:
        """Make the update; if it runs out of memory, retry with smaller microbatches. Only dropout
        masks differ."""
        tokens = update.tokens
        if self.loader.subword_sampler:  # each rank segments only its own sentences
            tokens = sum(self.group.all_gather(sum(batch.tokens for batch in update.batches)))
        while True:
            microbatches = []
            for batch in update.batches:
                parts = _split(batch, self.max_microbatch_tokens)
                microbatches += [part.to(self.device) for part in parts]
            try:
                return train_step(
                    self.model,
                    microbatches,
                    self.optimizer,
                    self.config.train,
                    tokens=tokens,
                    scaler=self.scaler,
                    all_reduce=self.all_reduce,
                    teacher=self.teacher,
                )
            except MemoryError:
                self._reduce_microbatch_size(microbatches)

    def _reduce_microbatch_size(self, microbatches: list[Batch]) -> None:
        size = max(batch.tgt_in_BT.numel() for batch in microbatches)
        if all(len(batch.src_BS) == 1 for batch in microbatches if batch.tgt_in_BT.numel() == size):
            raise TrainingError(
                f"a single pair of {size} tokens does not fit in memory",
                "reduce train.max_length or model.dim",
            )
        if self.max_microbatch_tokens is None:
            log(
                "the batches do not fit in memory and are split; the updates are identical apart"
                " from dropout masks"
            )
        self.max_microbatch_tokens = size // 2
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    @torch.no_grad()
    def _update_ema(self, step: int) -> None:
        """Update the averaged weights. The decay is lower for the first updates, to forget the
        initialization."""
        assert self.ema is not None
        decay = min(self.config.train.ema, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self.ema.parameters()), list(self.model.parameters()), 1 - decay)

    def validate(self, model: Seq2Seq | None = None) -> dict[str, float]:
        """Return `valid_loss` (nats per target token, without label smoothing), `valid_bleu`,
        `valid_chrf`, the score of another `train.best_metric`, and `best_metric_value`, the value
        of `train.best_metric` (higher is better).

        Also replaces `samples`. Afterwards `self.model` is in training mode, another `model` in
        evaluation mode.

        Args:
            model: the model to validate; None: the model that `save` saves.

        Raises:
            TrainingError: the loss is not finite, or a line does not fit in memory.
        """
        model = (model or self.ema or self.model).eval()
        hint = "shorten the lines of the validation set"
        with runtime.out_of_memory_as(
            TrainingError("a line of the validation set does not fit in memory", hint)
        ):
            loss = self._validation_loss(model)
        if not math.isfinite(loss):
            raise divergence_error(
                f"the validation loss is {loss} after update {self.progress.step:,}", self.lr
            )
        options = self.config.train
        test = sample(self.valid, options.valid_pairs or len(self.valid.sources))
        translations = self._translator(model).translate(test.sources, options.valid_search)
        samples = list(zip(test.sources, translations, test.first_references, strict=True))
        self.samples = samples[: options.num_samples]
        self.model.train()
        return self._scores(loss, test, translations)

    def _scores(self, loss: float, test: TestSet, translations: list[str]) -> dict[str, float]:
        """Return the scores of a validation; see `validate`."""
        bleu = metrics.bleu(translations, test.references).value
        chrf = metrics.chrf(translations, test.references).value
        scores = {"valid_loss": loss, "valid_bleu": bleu, "valid_chrf": chrf}
        values = {"loss": -loss, "bleu": bleu, "chrf": chrf}
        best_metric = self.config.train.best_metric
        if best_metric not in values:
            score = line_metrics.score(best_metric, test.sources, translations, test.references)
            scores[f"valid_{parse(best_metric)[0]}"] = score.value
            is_better = -1 if score.name in metrics.LOWER_IS_BETTER else 1
            values[best_metric] = is_better * score.value
        return scores | {"best_metric_value": values[best_metric]}

    def _translator(self, model: Seq2Seq) -> Translator:
        meta = self.prepared.meta
        max_source_length = min(meta["max_source_length"], self.config.train.max_length - 1)
        max_sentences_per_line = meta.get("max_sentences_per_line", 1)
        engine = engine_from_models([model], str(self.device), "auto", self.tokenizer.decode)
        return Translator(
            engine, self.tokenizer, self.config, max_source_length, max_sentences_per_line
        )

    @torch.inference_mode()
    def _validation_loss(self, model: Seq2Seq) -> float:
        store = self.prepared.store("valid")
        max_positions = self.model.max_positions or 2**31  # the loss of longer pairs is undefined
        valid_ids = np.flatnonzero(store.lengths_N2.max(1) < max_positions)
        losses = []
        tokens = 0
        batch_tokens = self.config.train.batch_tokens
        if self.packed_update:  # whose graphs keep the memory of a training batch
            batch_tokens //= 4
        for batch_ids in plan_batches(store.lengths_N2[valid_ids], batch_tokens):
            pairs = [store[int(i)] for i in valid_ids[batch_ids]]
            batch = collate(pairs, source_eos=model.config.source_eos).to(self.device)
            losses.append(batch_loss(model, batch, smoothing=0.0))
            tokens += batch.tokens
        return sum(torch.stack(losses).tolist()) / max(1, tokens) if losses else 0.0

    def record_validation(self, scores: dict[str, float]) -> None:
        """Record the scores of a validation."""
        state = self.progress
        state.scores = scores
        best = scores["best_metric_value"]
        loss = scores["valid_loss"]
        is_tie = best == state.best
        if state.best is None or best > state.best or (is_tie and loss < (state.best_loss or loss)):
            state.best = best
            state.best_loss = loss
            state.validations_since_best = 0
        else:
            state.validations_since_best += 1


def validation_set(prepared: PreparedData) -> TestSet:
    """Return the validation split of prepared data."""
    sources, targets = prepared.lines("valid")
    streams = reference_streams(prepared.valid_references())
    return TestSet(prepared.meta["recipe"]["valid"][0], sources, streams or [targets])


def _build_optimizer(model: Seq2Seq, config: Config) -> AdamW:
    build = parse_optimizer(config.train.optimizer, config.model.arch)
    return build(model, config.train)


def _rng_states(device: torch.device) -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def _prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: tensor for name, tensor in tensors.items()}


def _without_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names have a prefix, by the rest of their names."""
    start = len(prefix)
    return {name[start:]: tensors[name] for name in tensors if name.startswith(prefix)}


def _split(batch: Batch, max_tokens: int | None) -> list[Batch]:
    """Split a batch in two, recursively, until each part has at most `max_tokens` target positions
    or one pair."""
    if max_tokens is None or batch.tgt_in_BT.numel() <= max_tokens or len(batch.src_BS) == 1:
        return [batch]
    first, second = batch.split()
    return _split(first, max_tokens) + _split(second, max_tokens)
