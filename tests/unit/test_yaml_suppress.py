"""Suppressions in YAML files: the same comments as in JSON, with `#`."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import dsconf, lint, write

FSDP = "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def found(text: str) -> list[str]:
    write({"a.yaml": text})
    return lint("a.yaml", "--select", "AC101,DS104,DS131,DS301")


@pytest.mark.parametrize(
    "lines",
    [
        "  x_y: 1  # dsconf: ignore[AC101] ours\n",
        "  x_y: 1 #dsconf:ignore [ AC101 , ] ours\n",
        "  # dsconf: ignore[AC1]\n  x_y: 1\n",
        "# dsconf: ignore[accelerate-unknown-key]\n\n  # another comment\n  x_y: 1\n",
        "  # dsconf: ignore[ALL]\n  x_y:\n    a: 1\n",
        "  # dsconf: ignore[AC101]\n  x_y: >\n    a # b\n",
    ],
)
def test_a_comment_counts_for_its_line_or_the_next(lines: str) -> None:
    assert found(FSDP + lines) == ["0"]
    where = FSDP.count("\n") + 1 + lines[: lines.index("x_y")].count("\n")
    assert found(FSDP + lines.replace("dsconf:", "dsc:")) == [f"a.yaml:{where} AC101", "1"]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("  x_y: 1\n  # dsconf: ignore[AC101]\n", ["a.yaml:5 AC101", "a.yaml:6 DS131"]),
        ("  # dsconf: ignore[AC101]\n  fsdp_offload_params: false\n  x_y: 1\n", ["a.yaml:5 DS131", "a.yaml:7 AC101"]),
        ("  x_y: 1 # dsconf: ignore[DS301]\n", ["a.yaml:5 AC101", "a.yaml:5 DS131"]),
        ("  x_y: 1 # dsconf: ignore\n", ["a.yaml:5 AC101", "a.yaml:5 DS131"]),
        ("  x_y: '# dsconf: ignore[AC101]'\n", ["a.yaml:5 AC101"]),
        ("  x_y: |\n    # dsconf: ignore[AC101]\n    z\n", ["a.yaml:5 AC101"]),
        ("  x_y: 1 # dsconf: ignore-file[AC101]\n", ["a.yaml:5 AC101", "a.yaml:5 DS131"]),
    ],
)  # fmt: skip
def test_elsewhere_it_suppresses_nothing(lines: str, expected: list[str]) -> None:
    assert sorted(found(FSDP + lines)[:-1]) == expected


def test_ahead_of_the_first_key() -> None:
    wrong = f"{FSDP}  x_y: 1\n  z_y: 1\n"
    for start in ("# dsconf: ignore-file[AC101] ours\n", "---\n# dsconf: ignore-file[AC101]\n"):
        assert found(start + wrong) == ["0"]
    assert found("x_y: 1\n" + FSDP)[0] == "a.yaml:1 AC101"
    assert found("# dsconf: ignore[AC101]\n---\nx_y: 1\n" + FSDP) == ["0"]


def test_configs_of_one_file_share_its_comments() -> None:
    section = "{train_micro_batch_size_per_gpu: 4, zero_optimization: {stage: 2}, x_y: 1}"
    text = (
        f"deepspeed: {section} # dsconf: ignore[DS104]\nds_other: {section}\n# dsconf: ignore[DS301]\nc: 1\n"
    )
    assert found(text) == ["a.yaml:2 DS104", "a.yaml:3 DS131", "1"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("  fsdp_offload_params: true # dsconf: ignore[DS301] old\n", "  fsdp_offload_params: true\n"),
        ("  # dsconf: ignore[DS301]\n  fsdp_offload_params: true\n", "  fsdp_offload_params: true\n"),
        ("  x_y: 1 # dsconf: ignore[DS301,AC101, DS5] x\n", "  x_y: 1 # dsconf: ignore[AC101] x\n"),
        ("  fsdp_offload_params: true\r\n# dsconf: ignore[DS301]\r\n", "  fsdp_offload_params: true\r\n"),
    ],
)
def test_the_fix(before: str, after: str) -> None:
    write({"a.yaml": FSDP + before})
    dsconf("lint", "a.yaml", "--fix")
    assert Path("a.yaml").read_bytes().decode() == FSDP + after
