"""What a file is, told by its keys."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from corpus import CORPUS, corpus_yaml, needs_corpus

from dsconf.config.context import Context
from dsconf.config.effective import Config
from dsconf.document.json_scanner import scan
from dsconf.document.node import UNKNOWN, Document
from dsconf.document.source import Unusable
from dsconf.document.yaml_reader import scan_yaml
from dsconf.lint.engine import opener
from dsconf.lint.pieces import Skipped
from dsconf.lint.recognise import FSDP_SECTION, format_of, mentions_config

IN_YAML = ".yaml", ".yml"
OF_PROJECTS: dict[str, set[str | None]] = {
    "axolotl-ai-cloud__axolotl": {"axolotl", None},
    "hiyouga__LLaMA-Factory": {"trainer"},
    "cambrian-mllm": {FSDP_SECTION},
    "kv-wang__Qwen_limo": {FSDP_SECTION},
    "huggingface__optimum-habana": {FSDP_SECTION},
    "modelscope__ms-swift": {"trainer", "accelerate"},
    "EleutherAI__gpt-neox": {"deepspeed"},
    "CoinCheung__gdGPT": {"deepspeed"},
    "THUDM__CogVideo": {"deepspeed"},
    "microsoft__unilm__PFPO__conf__deepspeed": {"deepspeed"},
}
"""By the beginning of the name of a file of the corpus; all others are of no format that lint knows."""


def of(text: str) -> str | None:
    return format_of(scan_yaml("config.yaml", text))[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{distributed_type: FSDP}", "accelerate"),
        ("{compute_environment: LOCAL_MACHINE, fsdp_config: {}}", "accelerate"),
        ("{zero_optimization: {stage: 2}, distributed_type: FSDP}", "deepspeed"),
        ("{base_model: m, fsdp_version: 2}", "axolotl"),
        ("{base_model: m, deepspeed: ds.json}", "axolotl"),
        ("{base_model: m, fsdp: [full_shard]}", "axolotl"),
        ("{base_model: m, dp_shard_size: 2}", "axolotl"),
        ("{base_model: m, micro_batch_size: 1}", None),
        ("{base_model: m, fsdp: {}, micro_batch_size: 1}", None),
        ("{model: m, dist_config: {name: fsdp2}}", "llamafactory"),
        ("{model: m, dist_config: fsdp2}", None),
        ("{output_dir: o, fsdp: true}", "trainer"),
        ("{fsdp: full_shard, fsdp_config: {}}", "trainer"),
        ("{fsdp: {size: 2}, fsdp_config: {}}", None),
        ("{max_steps: 1, deepspeed: ds.json}", "trainer"),
        ("{max_steps: 1, deepspeed: true}", None),
        ("{output_dir: o, learning_rate: 1.0e-5}", None),
        ("{fsdp_version: 2, transformer_layer_cls_to_wrap: [A]}", FSDP_SECTION),
        ("{transformer_layer_cls_to_wrap: A, backward_prefetch: backward_pre}", FSDP_SECTION),
        ("{version: 2, cpu_offload: true}", None),
        ("{fsdp_version: 2, seed: 1}", None),
        ("{}", None),
    ],
)
def test_formats(text: str, expected: str | None) -> None:
    assert of(text) == expected


def test_none_has_a_reason() -> None:
    for text, reason in (
        ("{base_model: m}", "Axolotl"),
        ("{output_dir: o}", "no settings for FSDP or DeepSpeed"),
        ("{seed: 1}", "no keys"),
    ):
        name, said = format_of(scan_yaml("config.yaml", text))
        assert (name, reason in said) == (None, True)


def read(path: Path) -> Document:
    text = path.read_text(encoding="utf-8")
    return scan_yaml(str(path), text) if path.suffix in IN_YAML else scan(str(path), text)


def sections(text: str) -> list[Config]:
    """The configs in a YAML file, none where it is skipped."""
    try:
        return [piece.config for piece in opener(Context()).pieces("c.yaml", text, recognise=True)]
    except Skipped:
        return []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ds_cfg: {zero_optimization: {}}", 1),
        ("other: {train_micro_batch_size_per_gpu: 1}\ndeepspeed: {fp16: {}, optimizer: {}}", 2),
        ("DeepSpeed_config: {fp16: {}, optimizer: {}}", 1),
        ("train: {optimizer: {lr: 1.0e-5}, wandb: {enable: false}, checkpoint: {manager: dcp}}", 0),
        ("ds_path: {optimizer: adamw}", 0),
    ],
)
def test_sections_of_deepspeed_in_yaml(text: str, found: int) -> None:
    """Other trainers have a section with an optimizer and checkpoints, too."""
    assert [config.format for config in sections(text)] == ["deepspeed"] * found


def test_what_hydra_merges_into_a_section_is_open() -> None:
    text = (
        "ds_cfg: {train_micro_batch_size_per_gpu: 1, zero_optimization: {offload_optimizer: {device: cpu}}}\n"
    )
    (alone,) = sections(text)
    assert alone.value("zero_optimization.stage") == 0
    (merged,) = sections(f"defaults: [base@ds_cfg: zero3]\n{text}")
    assert merged.value("zero_optimization.stage") is UNKNOWN
    assert merged.value("train_micro_batch_size_per_gpu") == 1


def test_hydra_reads_numbers_that_are_text_to_other_readers_of_yaml() -> None:
    text = "ds: {zero_optimization: {reduce_bucket_size: 5e8, sub_group_size: '1e9', x: 1e}}\n"
    (other,) = sections(text)
    (hydra,) = sections(f"defaults: [_self_]\n{text}")
    size, quoted, x = (f"zero_optimization.{key}" for key in ("reduce_bucket_size", "sub_group_size", "x"))
    assert [other.raw(size), other.raw(quoted), other.raw(x)] == ["5e8", "1e9", "1e"]
    assert [hydra.raw(size), hydra.raw(quoted), hydra.raw(x)] == [500_000_000, "1e9", "1e"]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ('{"zero_optimization": {"reduce_bucket_size": 5e8}}', 500_000_000),
        ("zero_optimization: {reduce_bucket_size: 5e8}", "5e8"),
        ("{zero_optimization: {reduce_bucket_size: 5e8}, }", "5e8"),
    ],
)
def test_json_named_yaml_is_read_as_its_consumer_does(text: str, size: object) -> None:
    """Accelerate takes any name, and json.load; to YAML 5e8 is text."""
    (piece,) = opener(Context("accelerate")).pieces("zero2.yaml", text, recognise=False)
    assert piece.config.raw("zero_optimization.reduce_bucket_size") == size
    assert piece.config.document.text == text


def test_a_trainer_with_deepspeeds_keys_is_none_of_its_configs() -> None:
    text = "zero_optimization: {stage: 1}\n" + "".join(f"key_{number}: 1\n" for number in range(20))
    with pytest.raises(Skipped, match="another trainer"):
        opener(Context("deepspeed")).pieces("neox.yml", text, recognise=True)
    assert opener(Context("deepspeed")).pieces("neox.yml", text, recognise=False)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("distributed_type: FSDP", True),
        ("\ufeffdistributed_type: FSDP", True),
        ("{'fsdp_config' : {}}", True),
        ('{"a": 1,"fsdp":true}', True),
        ("trainer:\n  Deepspeed_Config: x", True),
        ("ds: {train_batch_size: 1}", True),
        ("dsn: postgres://db", False),
        ("run: pip install deepspeed", False),
        ("# fsdp is off\nimage: fsdp/deepspeed", False),
        ("services: {web: {image: nginx}}", False),
    ],
)
def test_a_config_is_smelt_before_it_is_read(text: str, wanted: bool) -> None:
    assert mentions_config(text) is wanted


@needs_corpus
def test_no_config_is_missed_for_lack_of_a_smell() -> None:
    missed = []
    for path in corpus_yaml():
        text = path.read_text("utf-8")
        try:
            known = format_of(scan_yaml(path.name, text))[0] if path.suffix in IN_YAML else None
        except Unusable:
            continue
        if known is not None and not mentions_config(text):
            missed.append(path.name)
    assert missed == []


@needs_corpus
def test_files_of_accelerate_in_the_corpus() -> None:
    assert CORPUS
    files = [path for path in Path(CORPUS, "accelerate_yaml").iterdir() if path.suffix in IN_YAML]
    assert len(files) > 80
    assert {format_of(read(path))[0] for path in files} == {"accelerate"}


@needs_corpus
def test_files_of_others_in_the_corpus() -> None:
    assert CORPUS
    found: Counter[str | None] = Counter()
    for path in sorted(Path(CORPUS, "other_yaml").iterdir()):
        expected = next(
            (names for start, names in OF_PROJECTS.items() if path.name.startswith(start)), {None}
        )
        name = format_of(read(path))[0]
        found[name] += 1
        assert name in expected, path.name
    assert found.keys() == {None, "deepspeed", "axolotl", "trainer", FSDP_SECTION, "accelerate"}
    assert found["axolotl"] > 10
