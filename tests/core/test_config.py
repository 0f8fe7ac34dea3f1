"""Config files and overrides are parsed strictly: every value takes effect or raises an error with
a hint."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import typing
from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nmt.core.config import Config, config_io
from nmt.core.errors import ConfigError
from nmt.core.ranges import Range, Share
from nmt.core.registry import format_spec, parse, resolve
from nmt.training.session import check_specs

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))


def config_error(text: str, tmp_path: Path) -> ConfigError:
    path = tmp_path / "c.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        config_io.load(path)
    return caught.value


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_built_in_configs_load_and_their_specs_resolve(path: Path) -> None:
    check_specs(config_io.load(path))


def test_quickstart_config_contains_every_option() -> None:
    tree = yaml.safe_load((CONFIGS[0].parent / "quickstart.yaml").read_text(encoding="utf-8"))
    named = [f"{k}.{inner}" for k, v in tree.items() if isinstance(v, dict) for inner in v]
    assert sorted([*named, *(k for k, v in tree.items() if not isinstance(v, dict))]) == sorted(
        config_io.OPTION_TYPES
    )


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("model: {dimm: 3}", "c.yaml: unknown key model.dimm", "did you mean 'model.dim'?"),
        (
            "{steps: 3, model: {dimm: 3}, later: 1}",
            "c.yaml: unknown keys steps, model.dimm, later",
            "did you mean 'train.steps'? did you mean 'model.dim'?",
        ),
        ("modle: {dim: 3}", "unknown key modle", "did you mean 'model'?"),
        (
            "data: {src: no}",
            "data.src: expected text, got False",
            "quote it: YAML parses yes, no, on and off as booleans",
        ),
        ("model: {dim: 64, heads: 7}", "model.dim (64) must be a multiple of model.heads (7)", ""),
        (
            "model: {dim: 64.5}",
            "model.dim: expected an integer, got 64.5",
            "run nmt config --options",
        ),
        ("seed: true", "seed: expected an integer, got True", "run nmt config --options"),
        ("train: {lr: 0.1}", "unknown key train.lr", "did you mean 'train.schedule=linear(peak="),
        ("batch_size: 64", "unknown key batch_size", "did you mean 'train.batch_tokens'?"),
        ("train: {dropout: 0.1}", "unknown key train.dropout", "did you mean 'model.dropout'?"),
        ("train: {xyz: 1}", "unknown key train.xyz", "run nmt config --options"),
        ("model: 3", "c.yaml: model: expected a section, got 3", ""),
        ("data: {train: multi30k}", "data.train: expected a list of text, got 'multi30k'", ""),
        ("train: {steps: 0}", "train.steps must be at least 1, got 0", "run nmt config --options"),
        ("model: {dropout: 1.0}", "model.dropout must be at least 0 and below 1", ""),
        ("train: {max_length: 9999}", "must not exceed train.batch_tokens", "longest pair"),
        ("data: {src: en, tgt: en}", "data.src and data.tgt are both 'en'", ""),
        (
            "data: {src: 'x y'}",
            "source language 'x y' is not a language code",
            "letters, digits, hyphens",
        ),
        ("data: {tgt: ''}", "target language '' is not a language code", "pt-BR"),
        ("data: {tgt: ../de}", "target language '../de' is not a language code", "zh_Hans"),
        ("data: {tgt: dé}", "target language 'dé' is not a language code", ""),
        ("data: {train: []}", "data.train names no corpus", "nmt data list"),
        ("- a\n- b", "is not a mapping", "sections"),
        ("model: {dim: 3", "line", ""),
        ("[" * 5000, "not valid YAML", ""),
        ("model:\n  dim: 32\n  dim: 64", "line 3: duplicate key 'dim'", ""),
    ],
)
def test_invalid_configs_raise_errors_with_hints(
    text: str, message: str, hint: str, tmp_path: Path
) -> None:
    error = config_error(text, tmp_path)
    assert message in error.message
    assert hint in error.hint
    assert error.exit_code == 2


@pytest.mark.parametrize(
    "text",
    [
        "train: {steps: 0}",
        "tokenizer: {model_type: bqe}",
        "model: {dim: 64, heads: 7}",
        "data: {src: en, tgt: en}",
    ],
)
def test_an_invalid_value_names_the_file_that_contains_it(text: str, tmp_path: Path) -> None:
    assert config_error(text, tmp_path).message.startswith(f"config {tmp_path / 'c.yaml'}: ")
    with pytest.raises(ConfigError, match=r"^config .*c\.yaml: "):
        config_io.load(tmp_path / "c.yaml", ["seed=3"])


def test_an_invalid_override_names_no_file(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("train: {steps: 5}", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"^train\.steps must be at least 1, got 0"):
        config_io.load(path, ["train.steps=0"])


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        ("files(train=a)", "text in quotes: train='a'"),
        ("files(train=my/corpus)", "text in quotes: files(train='my/corpus')"),
        ("files(train=/my/corpus)", "text in quotes: files(train='my/corpus')"),
        ("files(train=a.tsv)", "text in quotes: files(train='my/corpus')"),
        ("my/corpus", "write a name"),
        ("files(train='a'", "a parenthesis is missing"),
    ],
)
def test_a_spec_that_cannot_be_read_has_a_hint(spec: str, hint: str) -> None:
    with pytest.raises(ConfigError, match="cannot read") as caught:
        parse(spec)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("spec", "message", "hint"),
    [
        ("train.schedule=lineer", "unknown schedule 'lineer'", "did you mean 'linear'?"),
        ("search=beem", "unknown search 'beem'", "did you mean 'beam'?"),
        (
            "train.best_metric=blue",
            "train.best_metric: unknown metric 'blue'",
            "did you mean 'bleu'?",
        ),
        ("train.best_metric=chrf(order=2)", "metric 'chrf' has no options", "write chrf"),
        (
            "search=beam(sise=5)",
            "search 'beam' has no option 'sise'",
            "beam_size, top_beams, length_penalty, length_normalization",
        ),
        ("search=beam(5)", "cannot read 'beam(5)'", "beam(beam_size=5)"),
        ("search=beam(beam_size=4", "cannot read", ""),
        ("search=beam(length_penalty=nan)", "cannot read", "write a number as 0.5"),
        (f"train.clip_norm={'9' * 400}", "train.clip_norm must be at least 0, got inf", ""),
        ("search=beam(beam_size='x')", "search 'beam': beam_size must be an integer, got 'x'", ""),
        ("data.clean=[dedupe]", "unknown cleaning step 'dedupe'", "did you mean 'dedup'?"),
        ("data.train=[multi30]", "unknown corpus 'multi30'", "did you mean 'multi30k'?"),
        (
            "train.source_noise=[lowercase(q=1)]",
            "noise 'lowercase' has no option 'q'",
            "its options: p",
        ),
    ],
)
def test_invalid_specs_raise_errors_with_hints(spec: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_specs(config_io.load(None, [spec]))
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_options_that_an_architecture_does_not_use_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    changes = ["model.arch=rnn", "model.heads=8", "model.norm=rms", "model.dim=64"]
    check_specs(config_io.load(None, changes))
    warning = "warning: model.arch=rnn does not use model.heads, model.norm\n"
    assert capsys.readouterr().err == f"nmt: {warning}"


@pytest.mark.parametrize(
    ("override", "read", "value"),
    [
        ("train.eps=1e-4", lambda c: c.train.eps, 1e-4),
        ("train.label_smoothing=0", lambda c: c.train.label_smoothing, 0.0),
        ("data.src=no", lambda c: c.data.src, "no"),
        ("model.tie_embeddings=false", lambda c: c.model.tie_embeddings, False),
        ("data.train=tatoeba", lambda c: c.data.train, ("tatoeba",)),
        ("data.train=[tatoeba, multi30k]", lambda c: c.data.train, ("tatoeba", "multi30k")),
        ("data.clean=", lambda c: c.data.clean, ()),
        (
            "data.train=files(train='a, b', valid='c')",
            lambda c: c.data.train,
            ("files(train='a, b', valid='c')",),
        ),
        ("data.train+=tatoeba", lambda c: c.data.train, ("phrasebook", "tatoeba")),
        (
            "data.train += [tatoeba, multi30k]",
            lambda c: c.data.train,
            ("phrasebook", "tatoeba", "multi30k"),
        ),
        ("seed=7", lambda c: c.seed, 7),
        ("search=greedy", lambda c: c.search, "greedy"),
    ],
)
def test_overrides_set_their_option(override: str, read: Any, value: Any) -> None:
    assert read(config_io.load(None, [override])) == value


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.step=3", "unknown key train.step"),
        ("dim=3", "unknown key dim"),
        ("model=3", "unknown key model"),
        ("train.steps", "cannot read --set train.steps"),
        ("train.steps=many", "train.steps: expected an integer, got 'many'"),
        ("train.steps=", "train.steps: expected an integer, got None"),
        ("a.b.c=1", "unknown key a.b.c"),
        ("train.steps+=1", "train.steps is not a list"),
        ("train.steps=[", "cannot read the value"),
    ],
)
def test_invalid_overrides_raise(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("[", "\\[")):
        config_io.load(None, [override])


def test_a_key_without_its_section_is_found() -> None:
    with pytest.raises(ConfigError) as caught:
        config_io.load(None, ["dim=3"])
    assert "model.dim" in caught.value.hint
    assert "train.steps" not in caught.value.hint


def test_dump_and_load_round_trip(tmp_path: Path) -> None:
    config = config_io.load(
        None, ["train.eps=1e-7", "data.src=no", "data.clean=[]", "search=beam(beam_size=7)"]
    )
    (tmp_path / "c.yaml").write_text(config_io.dump(config), encoding="utf-8")
    assert config_io.load(tmp_path / "c.yaml") == config
    assert config_io.load(None) == Config()


def test_a_directory_does_not_hide_a_built_in_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "multi30k").mkdir()
    assert config_io.find("multi30k").name == "multi30k.yaml"


def test_unknown_config_name_suggests_a_built_in_config(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        config_io.find("quikstart")
    assert "did you mean 'quickstart'?" in caught.value.hint
    with pytest.raises(ConfigError, match="is a directory"):
        config_io.find(str(tmp_path))


def test_resolve_binds_options_and_keeps_defaults() -> None:
    def family(x: int, *, a: int, b: float = 2.0, c: tuple[str, ...] = ()) -> tuple[Any, ...]:
        return x, a, b, c

    assert resolve("thing", {"f": family}, "f(a=1, c=('x', 'y'))")(0) == (0, 1, 2.0, ("x", "y"))
    assert resolve("thing", {"f-g": family}, "f-g(a=1, b=3)")(0) == (0, 1, 3, ())
    with pytest.raises(ConfigError, match="requires a"):
        resolve("thing", {"f": family}, "f")
    with pytest.raises(ConfigError, match="cannot read"):
        resolve("thing", {"f": family}, "f(a=__import__('os'))")


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "(",
        "beam(",
        "beam)",
        "beam(5)",
        "beam(beam_size=5, beam_size=6)",
        "beam(beam_size=n)",
        "beam(*[5])",
        "beam(**{'beam_size': 5})",
        "beam(beam_size=5)(top_beams=1)",
        "beam(beam_size=5) or greedy",
        "beam; greedy",
        "beam(beam_size={[5]: 5})",
        "beam(beam_size=\0)",
        f"beam(beam_size={'-' * 9000}5)",
        "über beam",
        "2beam",
    ],
)
def test_invalid_spec_raises(spec: str) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        parse(spec)


@given(
    st.text(max_size=40) | st.text("beam(beam_size=5,)'\" [{:}]", max_size=20).map("beam(".__add__)
)
def test_any_string_parses_or_raises_config_error(spec: str) -> None:
    with contextlib.suppress(ConfigError):
        name, options = parse(spec)
        assert name
        assert isinstance(options, dict)
        assert parse(format_spec(name, options)) == (name, options)


def test_configs_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().seed = 2


# ---- ranges


def annotations(config: Any = Config, prefix: str = "") -> dict[str, Any]:
    """Return the annotation of each option by its full name."""
    found: dict[str, Any] = {}
    for name, kind in typing.get_type_hints(config, include_extras=True).items():
        if dataclasses.is_dataclass(kind):
            found |= annotations(kind, f"{name}.")
        else:
            found[f"{prefix}{name}"] = kind
    return found


NUMBERS = {name: each for name, each in annotations().items() if each not in (str, bool)}
RANGES = {
    name: each.__metadata__[0] for name, each in NUMBERS.items() if hasattr(each, "__metadata__")
}


def test_every_number_of_the_config_has_a_range() -> None:
    assert {name for name, each in NUMBERS.items() if each in (int, float)} == set()
    assert len(RANGES) > 30


@given(
    minimum=st.none() | st.integers(-9, 9),
    maximum=st.none() | st.integers(-9, 9),
    above=st.none() | st.integers(-9, 9),
    below=st.none() | st.integers(-9, 9),
    value=st.integers(-10, 10) | st.floats(),
)
def test_ranges_contain_the_numbers_within_all_bounds(value: float, **bounds: int | None) -> None:
    given_bounds = {name: bound for name, bound in bounds.items() if bound is not None}
    is_valid = math.isfinite(value)
    for name, bound in given_bounds.items():
        is_valid = (
            is_valid
            and {
                "minimum": value >= bound,
                "maximum": value <= bound,
                "above": value > bound,
                "below": value < bound,
            }[name]
        )
    assert (value in Range(**given_bounds)) == is_valid


@pytest.mark.parametrize("name", RANGES)
def test_values_out_of_range_raise_an_error_with_the_range(name: str) -> None:
    allowed = RANGES[name]
    candidates = [-math.inf, -1, 0, 0.5, 1, 1.5, 2**70, math.inf, math.nan]
    if NUMBERS[name].__origin__ is int:
        candidates = [-(2**70), -1, 0]
    outside = [value for value in candidates if value not in allowed]
    assert outside
    section, _, key = name.rpartition(".")
    for value in outside:
        parent = getattr(Config(), section) if section else Config()
        changed = dataclasses.replace(parent, **{key: value})
        config = dataclasses.replace(Config(), **{section: changed}) if section else changed
        with pytest.raises(ConfigError) as caught:
            config_io.check(config)
        assert caught.value.message == f"{name} must be {allowed}, got {value}"


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        (Range(1), "at least 1"),
        (Range(1, 20), "between 1 and 20"),
        (Range(0, below=1), "at least 0 and below 1"),
        (Range(above=0, maximum=1), "above 0 and at most 1"),
        (Range(above=0), "above 0"),
    ],
)
def test_ranges_describe_themselves(bounds: Range, text: str) -> None:
    assert str(bounds) == text


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("ranged(size=0)", "kind 'ranged': size must be at least 1, got 0"),
        ("ranged(share=1.0)", "kind 'ranged': share must be at least 0 and below 1, got 1.0"),
        ("ranged(size='x')", "kind 'ranged': size must be an integer, got 'x'"),
    ],
)
def test_options_of_specs_have_ranges(spec: str, message: str) -> None:
    def ranged(*, size: Annotated[int, Range(1)] = 1, share: Share = 0.0, free: int = 0) -> None:
        """A component."""

    resolve("kind", {"ranged": ranged}, "ranged(size=3, share=0.5, free=-9)")
    with pytest.raises(ConfigError) as caught:
        resolve("kind", {"ranged": ranged}, spec)
    assert caught.value.message == message


def test_a_file_that_cannot_be_read_has_no_hint_at_options(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file") as missing:
        config_io.read(tmp_path / "config.yaml")
    assert "--options" not in missing.value.hint
    (tmp_path / "config.yaml").write_text("model: {dim: wide}\n")
    with pytest.raises(ConfigError, match=r"config\.yaml: model\.dim") as invalid:
        config_io.read(tmp_path / "config.yaml")
    assert "--options" in invalid.value.hint
