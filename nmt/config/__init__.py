"""Every option of nmt, as frozen dataclasses. A config names what differs from these defaults.

The text under a field is its documentation: `nmt config --options` prints it. Spec strings such as
`beam(beam_size=4)` name a function of a family and its options (see `nmt.registry`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_PIECES = 2**16
"""The largest vocabulary: prepared text holds 16-bit ids."""


@dataclass(frozen=True)
class DataConfig:
    """Which text is learned from and measured on."""

    src: str = "en"
    """Language code of the source side."""
    tgt: str = "de"
    """Language code of the target side."""
    train: tuple[str, ...] = ("phrasebook",)
    """Training corpora by name (see `nmt data list`), or files(train='PREFIX or TSV') for your own text."""
    valid: str = ""
    """Corpus whose validation split is used; empty: that of the first training corpus."""
    test: str = ""
    """Corpus whose test split is used; empty: that of the first training corpus."""
    clean: tuple[str, ...] = ("normalize", "length(max=200)", "ratio(max=3.0)", "dedup")
    """Cleaning steps for training text, in order."""


@dataclass(frozen=True)
class TokenizerConfig:
    """One SentencePiece model for both languages."""

    model_type: str = "bpe"
    """Segmentation model: unigram or bpe."""
    vocab_size: int = 8000
    """Number of pieces, the special ones and 256 bytes included; a small corpus may allow fewer."""
    max_training_sentences: int = 2_000_000
    """Most sentences that the tokenizer is trained on; a larger corpus is sampled."""
    model: str = ""
    """SentencePiece model to use as it is, from `nmt tokenizer train`; empty: one is trained on the corpus."""


@dataclass(frozen=True)
class ModelConfig:
    """The network. Sizes as in Vaswani et al. 2017, table 3."""

    arch: str = "transformer"
    """Architecture: transformer, or rnn, for which only dim, the numbers of layers, dropout and tied count."""
    dim: int = 256
    """Width of embeddings and layers (d_model)."""
    heads: int = 4
    """Attention heads; must divide dim."""
    ffn_dim: int = 1024
    """Width of the feed-forward layer (d_ff)."""
    encoder_layers: int = 3
    """Layers of the encoder."""
    decoder_layers: int = 3
    """Layers of the decoder."""
    norm_position: str = "pre"
    """Where layer normalization stands: post (the paper) or pre (learns at higher rates)."""
    norm: str = "layer"
    """Which one it is: layer (the paper), or rms, which takes off no mean."""
    activation: str = "relu"
    """Activation of the feed-forward layer: relu (the paper), gelu or swiglu, which has a third matrix."""
    position_encoding: str = "sinusoidal"
    """Positional encoding with its options: sinusoidal (the paper), rotary, shaw, t5, ...; see docs/variants.md."""
    attention_score: str = "dot"
    """Scoring function: dot (the paper) or additive."""
    attention_window: int = 0
    """Neighbors on each side that a token's self-attention sees; 0: all."""
    kv_heads: int = 0
    """Heads of keys and values (grouped-query attention); must divide heads; 0: as many as heads."""
    layer_sharing: int = 1
    """Layers in a row that have the same weights; 1: none share."""
    dropout: float = 0.1
    """Dropout on embeddings and on every sub-layer's output."""
    attention_dropout: float = 0.0
    """Dropout on attention weights."""
    activation_dropout: float = 0.0
    """Dropout inside the feed-forward layer, after the activation."""
    tie_embeddings: bool = True
    """Share one matrix between source embedding, target embedding and output layer."""


@dataclass(frozen=True)
class TrainConfig:
    """How the network is trained."""

    steps: int = 10_000
    """Updates."""
    batch_tokens: int = 2048
    """Most tokens of a batch, padding counted, on its longer side."""
    grad_accumulation: int = 1
    """Batches whose gradients make one update."""
    max_length: int = 256
    """Training pairs with more tokens than this on one side are left out (and counted)."""
    schedule: str = "linear(peak=2e-3, warmup=400)"
    """Learning rate over the updates: noam, inverse_sqrt, linear, cosine, constant or wsd, with their options."""
    beta1: float = 0.9
    """Adam's decay of the first moment."""
    beta2: float = 0.98
    """Adam's decay of the second moment."""
    eps: float = 1e-9
    """Adam's epsilon."""
    weight_decay: float = 0.0
    """Decoupled weight decay (AdamW)."""
    clip_norm: float = 1.0
    """Largest norm of the whole gradient; 0 leaves it as it is."""
    label_smoothing: float = 0.1
    """Probability mass spread evenly over the vocabulary (Szegedy et al. 2016)."""
    ema: float = 0.0
    """Decay of an exponential moving average of the weights, which is then what translates; 0 is off."""
    init_from: str = ""
    """Start from the weights of this run or checkpoint instead of random ones (fine-tuning)."""
    source_noise: tuple[str, ...] = ()
    """Source noise, drawn anew for every pair and epoch: lowercase(p=0.1), no_punctuation(p=0.1), ..."""
    subword_regularization: str = ""
    """Segmentation drawn anew at every use: bpe_dropout(p=0.1) or unigram(alpha=0.2), for that kind of tokenizer."""
    valid_every: int = 500
    """Updates between validations; each writes a checkpoint."""
    valid_pairs: int = 0
    """Validation pairs that are translated for BLEU; 0 takes all of them."""
    valid_search: str = "greedy"
    """Search that validation uses."""
    best_metric: str = "bleu"
    """What the best checkpoint is chosen by, and early stopping decides by: bleu, chrf or loss."""
    patience: int = 0
    """Stop after this many validations without a better one; 0 never stops early."""
    keep_last: int = 2
    """Latest checkpoints that are kept, besides the best."""
    keep_best: int = 1
    """Best checkpoints that are kept."""
    average_last: int = 0
    """At the end, also average the weights of this many latest checkpoints; 0 does not."""
    num_samples: int = 2
    """Translations of validation sentences that are shown at each validation."""
    log_every: int = 50
    """Updates between two lines of metrics.jsonl."""


@dataclass(frozen=True)
class Config:
    """A complete experiment."""

    seed: int = 1
    """Seed of everything random: initial weights, data order, dropout, noise."""
    search: str = "beam(beam_size=4)"
    """Search that `nmt translate` and `nmt evaluate` use unless told otherwise."""
    lowercase_all_caps: bool = False
    """Translate a text in CAPITALS, four or more and nothing small, as if in small letters; training text stays."""
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
