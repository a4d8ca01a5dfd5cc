"""Which files of a folder `dsconf lint` takes, and what stands for standard input."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from configs import ALL_AUTO
from corpus import corpus_json, needs_corpus

from dsconf.cli import main
from dsconf.document.json_scanner import scan
from dsconf.document.source import Unusable
from dsconf.formats.deepspeed.keys import load_keys
from dsconf.lint.discover import LARGEST, discover, looks_like_config
from dsconf.lint.recognise import not_deepspeed

CONFIG = '{"train_micro_batch_size_per_gpu": 4}'
TRAINING_ARGS = '{"fp16": true, "bf16": false, "gradient_accumulation_steps": 4, "optim": "adamw_torch"}'


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, text: str = CONFIG) -> str:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return name


def dsconf(*args: str, stdin: str | bytes | None = None) -> Result:
    result = CliRunner().invoke(main, ["lint", *args], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def files(*paths: str, exclude: tuple[str, ...] = ()) -> list[str]:
    return discover(paths, lambda _: (str(Path.cwd()), exclude)).files


# --- folders -----------------------------------------------------------------------------------------------------


def test_a_folder_is_searched_by_content() -> None:
    write("b/zero.json")
    write("a.hjson")
    write("c.jsonc")
    for name, text in (
        ("package.json", '{"name": "x", "scripts": {}}'),
        ("args.json", TRAINING_ARGS),
        ("list.json", "[1]"),
        ("empty.json", ""),
        ("binary.json", "\0"),
        ("ds.txt", CONFIG),
    ):
        write(name, text)
    assert files(".") == ["a.hjson", "c.jsonc", "b/zero.json"]
    assert files("b") == ["b/zero.json"]
    assert files(os.path.abspath("b")) == [os.path.abspath("b/zero.json")]  # noqa: PTH100


CONFIGS_IN_YAML = {
    "accelerate": "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 8\n",
    "trainer": "output_dir: o\nfsdp: true\nfsdp_config:\n  fsdp_version: 2\n",
    "section": "fsdp_version: 2\nfsdp_transformer_layer_cls_to_wrap: Block\n",
    "axolotl": "base_model: m\nfsdp_version: 2\nfsdp_config:\n  offload_params: false\n",
    "axolotl-sizes": "base_model: m\ndp_shard_size: 4\n",
    "llamafactory": "model_name_or_path: m\ndist_config:\n  name: fsdp2\n",
    "llamafactory-deepspeed": "output_dir: o\ndeepspeed: examples/deepspeed/ds_z3_config.json\n",
    "deepspeed-inside": "run: {name: x}\nds_cfg:\n  train_micro_batch_size_per_gpu: 1\n",
    "in-flow-style": '{"distributed_type": "FSDP", "num_processes": 8}\n',
}
OTHER_YAML = {
    "compose": "services:\n  deepspeed:\n    image: deepspeed/deepspeed\n    environment: [USE_FSDP=1]\n",
    "workflow": "on: push\njobs:\n  deepspeed:\n    steps:\n      - run: |\n          pip install deepspeed\n",
    "olmo": "model: {d_model: 4096}\nfsdp:\n  wrapping_strategy: by_block\n  precision: mixed\nprecision: amp\n",
    "hydra": "defaults:\n  - _self_\nactor:\n  fsdp_config:\n    param_offload: false\n",
    "axolotl-alone": "base_model: m\nmicro_batch_size: 1\n",
    "trainer-alone": "output_dir: o\nlearning_rate: 1.0e-5\n",
    "another-section": "train:\n  optimizer: {lr: 1.0e-5}\n  checkpoint: {manager: dcp}\n  wandb: {name: x}\n",
    "gpt-neox": "hidden-size: 768\nzero_optimization:\n  stage: 1\n",
    "documents": "kind: Pod\n---\nkind: Service\n",
    "helm": "image: {{ .Values.image }}\n  {{- if .Values.x }}\n",
    "list": "- deepspeed: 1\n",
    "broken": "distributed_type: [FSDP\n",
    "empty": "",
}


def test_yaml_in_a_folder() -> None:
    for name, text in (CONFIGS_IN_YAML | OTHER_YAML).items():
        write(f"{name}.yaml", text)
    assert files(".") == sorted(f"{name}.yaml" for name in CONFIGS_IN_YAML)


@pytest.mark.parametrize("name", sorted(set(OTHER_YAML) - {"broken", "list", "empty"}))
def test_other_yaml_that_is_named_is_skipped(name: str) -> None:
    """A hook of pre-commit is given every YAML file of a repository."""
    result = dsconf(write("other.yaml", OTHER_YAML[name]))
    assert result.exit_code == 0
    assert "other.yaml: skipped, " in result.output


@pytest.mark.parametrize("suffix", [".yml", ".YAML"])
def test_other_names_of_yaml(suffix: str) -> None:
    write(f"c{suffix}", CONFIGS_IN_YAML["accelerate"])
    assert files(".") == [f"c{suffix}"]


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff{}",
        "{}# \ta\ttab\n#\tand one\n",
        "---\n{}...\n",
        "{}fsdp_config: {fsdp_version:   2,   fsdp_typo: 'x' }   # odd\n\n\n",
        "{}fsdp_config:\n    fsdp_version: 2\n    fsdp_offload_params: off",
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_fix_of_nothing_changes_no_byte(text: str, end: str) -> None:
    config = CONFIGS_IN_YAML["accelerate"]
    data = text.replace("{}", config, 1).replace("\n", end).encode()
    Path("a.yaml").write_bytes(data)
    Path("b.yaml").write_bytes(data)
    result = dsconf("a.yaml", "b.yaml", "--fix")
    assert "Fixed" not in result.output
    assert "skipped" not in result.output
    assert result.exit_code in (0, 1)
    assert [Path(name).read_bytes() for name in ("a.yaml", "b.yaml")] == [data, data]


def test_a_fix_changes_its_place_and_no_other_byte() -> None:
    text = "\ufeff# \ttab\r\ndistributed_type: FSDP\r\nnum_processes: 8\r\nfsdp_config:\r\n  fsdp_verison:  2 #\tx"
    Path("a.yaml").write_bytes(text.encode())
    assert dsconf("a.yaml", "--fix", "--unsafe-fixes").exit_code == 0
    assert Path("a.yaml").read_bytes() == text.replace("verison", "version").encode()


def test_a_broken_config_is_found_and_said() -> None:
    write("broken.json", '{"zero_optimization": {"stage": 2}')
    write("foreign.json", '{"optimizer": {')
    assert files(".") == ["broken.json"]
    assert dsconf().exit_code == 2


def test_named_files_come_as_they_are() -> None:
    write("x/a.json")
    write("other.json", "{}")
    assert files("other.json", "x", "x/a.json", "missing.json") == ["other.json", "x/a.json", "missing.json"]


@pytest.mark.parametrize("folder", [".venv", ".git", "node_modules", "a/__pycache__", "site-packages/x"])
def test_folders_of_others_are_passed_over(folder: str) -> None:
    write(f"{folder}/ds.json")
    write("ds.json")
    assert files(".") == ["ds.json"]
    inside = discover([folder])
    assert inside.files == [f"{folder}/ds.json"], "a folder that is named is searched"


def test_data_is_passed_over() -> None:
    write("data.json", CONFIG + " " * LARGEST)
    assert discover(["."]) == ([], ["."])


def test_links_to_folders_are_not_followed() -> None:
    write("real/ds.json")
    Path("real/loop").symlink_to(Path.cwd(), target_is_directory=True)
    Path("link.json").symlink_to("real/ds.json")
    assert files(".") == ["link.json", "real/ds.json"]


def test_gitignore_in_a_repository() -> None:
    Path(".git").mkdir()
    write(".gitignore", "out/\n*.local.json\n/top.json\n")
    write("sub/.gitignore", "!keep.local.json\ndrop.json\n")
    for name in (
        "out/ds.json", "sub/out/ds.json", "a.local.json", "top.json", "sub/top.json", "sub/keep.local.json",
        "sub/drop.json", "drop.json",
    ):  # fmt: skip
        write(name)
    wanted = ["drop.json", "sub/keep.local.json", "sub/top.json"]
    assert files(".") == wanted
    assert files("sub") == wanted[1:], "what stands above the folder counts too"
    assert files("out/ds.json") == ["out/ds.json"]


def test_gitignore_above_counts_in_a_repository_only() -> None:
    write(".gitignore", "ds.json\n")
    write("sub/ds.json")
    assert files("sub") == ["sub/ds.json"]


def test_exclude() -> None:
    write("old/ds.json")
    write("new/ds.json")
    write("new/deep/x.json")
    assert files(".", exclude=("old", "new/deep/*.json")) == ["new/ds.json"]
    assert files("old", exclude=("old/",)) == ["old/ds.json"] or files("old", exclude=("old/",)) == []


def test_no_config_is_said() -> None:
    write("other.json", "{}")
    result = dsconf(".")
    assert result.exit_code == 2
    assert "no DeepSpeed config in ." in result.stderr
    assert dsconf().stderr == result.stderr, "no path stands for the present folder"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_closed_folder_is_said() -> None:
    Path("closed").mkdir(mode=0)
    with pytest.raises(Unusable, match="cannot be read"):
        discover(["closed"])


def test_show_files() -> None:
    write("b.json", '{"train_batch_size": "x", "zero_optimization": 1}')
    write("a/ds.json")
    result = dsconf(".", "--show-files")
    assert (result.exit_code, result.stdout) == (0, "b.json\na/ds.json\n")


# --- recognition -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ({"zero_optimization": {}}, True),
        ({"fp16": {"enabled": True}, "optimizer": {"type": "Adam"}}, True),
        ({"train_batch_size": 8, "gradient_accumulation_steps": 1}, True),
        ({"fp16": True, "bf16": False, "gradient_accumulation_steps": 4}, False),
        ({"optimizer": "adamw", "scheduler": "cosine"}, False),
        ({"train_batch_size": 8}, False),
        ({"x": {"zero_optimization": {}}}, False),
        (ALL_AUTO, True),
    ],
)
def test_looks_like_config(value: object, wanted: bool) -> None:
    assert looks_like_config(json.dumps(value), load_keys()) is wanted


@needs_corpus
def test_public_configs_are_found() -> None:
    """Those that a named file is taken for are found in a folder too, but for the ones with few keys."""
    taken = missed = 0
    for path in corpus_json():
        text = path.read_text(encoding="utf-8", errors="replace")
        try:
            if not_deepspeed(scan("", text), load_keys()) is not None:
                continue
        except Unusable:
            continue
        taken += 1
        missed += not looks_like_config(text, load_keys())
    assert taken > 100
    assert missed <= 0.03 * taken


# --- standard input ----------------------------------------------------------------------------------------------


def test_stdin() -> None:
    result = dsconf("-", "--output-format", "concise", stdin='{"train_micro_batch_size_per_gpu": "4"}')
    assert result.exit_code == 1
    assert result.stdout.startswith("<stdin>:1:2: DS106 error: ")
    named = dsconf("-", "--stdin-filename", "x/ds.json", "--output-format", "json", stdin=CONFIG[:-1])
    assert named.exit_code == 2
    assert json.loads(named.stdout)["findings"][0]["file"] == "x/ds.json"


@pytest.mark.parametrize("data", [b"", b"\xff\xfe{}", b"\x00", b"\xff"])
def test_bad_stdin(data: bytes) -> None:
    result = dsconf("-", stdin=io.BytesIO(data).read())
    assert result.exit_code == 2
    assert "DS100" in result.stdout


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ({"compute_environment": "LOCAL_MACHINE", "mixed_precision": "bf16"}, "AC103"),
        ({"fsdp_sharding_strategy": 1, "fsdp_offload_params": False}, "TR101"),
        ({"transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"], "offload_params": True}, "TR101"),
    ],
)
@pytest.mark.parametrize("consumer", [[], ["--consumer", "trainer"]])
def test_configs_of_something_else_are_read_as_such_whoever_reads_them(
    value: object, code: str, consumer: list[str]
) -> None:
    write("other.json", json.dumps(value))
    assert code in dsconf("other.json", *consumer).stdout
    write("ds.json", json.dumps({"fsdp": "x", "train_micro_batch_size_per_gpu": 4}))
    assert "DS104" in dsconf("ds.json", *consumer).stdout
