"""The real command line in a folder of its own, and a small parallel text to train on."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import forkserver

TINY = {
    "tokenizer.vocab_size": "350",
    "model.dim": "32",
    "model.heads": "2",
    "model.ffn_dim": "64",
    "model.encoder_layers": "1",
    "model.decoder_layers": "1",
    "train.steps": "20",
    "train.valid_every": "10",
    "train.valid_pairs": "5",
    "train.batch_tokens": "512",
    "train.source_noise": "",
    "train.log_every": "5",
}
NOUNS = {"dog": "Hund", "cat": "Kater", "tree": "Baum", "bird": "Vogel", "boat": "Kahn", "stone": "Stein"}
ADJECTIVES = {"small": "kleine", "old": "alte", "green": "grüne", "heavy": "schwere", "quiet": "leise"}
VERBS = {"sees": "sieht", "draws": "malt", "finds": "findet", "carries": "trägt"}


def sentences(count: int) -> tuple[list[str], list[str]]:
    """Write different English sentences and their German translations."""
    things = list(itertools.product(ADJECTIVES, NOUNS))
    chosen = random.Random(1).sample(list(itertools.product(things, VERBS, things)), count)
    source = [f"the {a} {n} {v} the {b} {m}." for (a, n), v, (b, m) in chosen]
    target = [
        f"der {ADJECTIVES[a]} {NOUNS[n]} {VERBS[v]} den {ADJECTIVES[b]}n {NOUNS[m]}." for (a, n), v, (b, m) in chosen
    ]
    return source, target


def heed_interrupts() -> None:
    """Undo what a shell does to its background jobs, one of which may be the whole suite."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        """The error lines, without their label."""
        label = "nmt: error: "
        return [line.removeprefix(label) for line in self.err.split("\n") if line.startswith(label)]

    def refuses(self, code: int, *texts: str) -> None:
        """Check that the command failed with one line, an exit code and nothing on stdout."""
        assert self.code == code, self.err
        assert len(self.errors) == 1, self.err
        assert self.out == ""
        for text in texts:
            assert text in self.err


@dataclass(frozen=True)
class CommandLine:
    """`nmt` as a user runs it, in `folder`."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    plain: bool = False
    """Start Python anew, as a user does: where imports, or equality between processes, are what is tested."""

    def start(self, *arguments: str | Path, **options: object) -> subprocess.Popen[bytes]:
        """Start a command; stdout and stderr are pipes unless `options` say otherwise."""
        known = {"NMT_DATA": "data", "NMT_RUNS": "runs", "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
        env = os.environ | known | self.environment
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        command = [sys.executable, "-m", "nmt", *map(str, arguments)]
        forked = not self.plain and forkserver.can_start(env, options)
        begin: type[subprocess.Popen[bytes]] = forkserver.Forked if forked else subprocess.Popen
        options = pipes | ({} if forked else {"preexec_fn": heed_interrupts}) | options
        return begin(command, cwd=self.folder, env=env, **options)  # type: ignore[call-overload, no-any-return]

    def __call__(self, *arguments: str | Path, stdin: bytes = b"", **options: object) -> Done:
        """Run a command to its end; whatever it was given, it must not answer with a traceback."""
        process = self.start(*arguments, **options)
        try:
            out, err = process.communicate(stdin or None, timeout=300)
        finally:
            process.kill()
        done = Done(process.returncode, (out or b"").decode(), (err or b"").decode())
        assert "Traceback" not in done.err, done.err
        return done

    def train(self, run: str, corpus: str = "files(train='text')", *arguments: str, **changes: str) -> Done:
        """Train a tiny model; `changes` are options with `_` for the dot of a section."""
        return self(*training(run, corpus, *arguments, **changes))


def training(run: str, corpus: str = "files(train='text')", *arguments: str, **changes: str) -> list[str]:
    """The arguments of a tiny training."""
    options = TINY | {key.replace("__", "."): value for key, value in changes.items()} | {"data.train": corpus}
    return ["train", "--run", run, *arguments, *(w for k, v in options.items() for w in ("--set", f"{k}={v}"))]


def write(prefix: Path, source: list[str] | bytes, target: list[str] | bytes) -> None:
    """Write PREFIX.en and PREFIX.de, the lines as they are."""
    for code, text in (("en", source), ("de", target)):
        content = text if isinstance(text, bytes) else "".join(f"{line}\n" for line in text).encode()
        prefix.with_name(f"{prefix.name}.{code}").write_bytes(content)
