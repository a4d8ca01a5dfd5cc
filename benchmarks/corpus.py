"""What dsconf makes of many public configs: every JSON and YAML file below $DSCONF_CORPUS linted, and JSON translated.

    ./dev corpus                    print the counts
    ./dev corpus --write            write those of docs/corpus.md, and the list of what has to translate
    ./dev corpus --sample 120       print that many warnings, chosen by a seed, for a person to judge
    ./dev corpus --yaml --sample 60 the same of the YAML files, and of the JSON files beside them

Exit status 1 where one of them raised what is no answer, 2 without a corpus.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from random import Random

from corpus import LIST, configs, corpus_yaml, named
from filling import values_for

from dsconf.config.context import Consumer, Context
from dsconf.lint.engine import lint_file
from dsconf.lint.index import load_rules
from dsconf.translate.run import Refused, translate

CONSUMERS: tuple[Consumer | None, ...] = (None, "deepspeed", "trainer", "accelerate")
CONSUMERS_SAMPLED: tuple[Consumer, ...] = ("deepspeed", "trainer", "accelerate")
PAGE = Path(__file__).parents[1] / "docs" / "corpus.md"
TABLE = "| code | rule | severity | anybody | DeepSpeed | Trainer | Accelerate |"
YAML = "| code | rule | severity | fails | files |"
SKIPPED = "| not judged, as | files |"
TRANSLATED = "| status | why | files |"
MOST = 25
"""Reasons to show."""


def main() -> int:
    """Run over the corpus and print the counts, or a sample of the warnings."""
    parser = argparse.ArgumentParser(description="Lint and translate the configs below $DSCONF_CORPUS.")
    parser.add_argument("--sample", type=int, metavar="N", help="print N warnings instead of the counts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--yaml", action="store_true", help="take the sample of the configs of trainers")
    parser.add_argument(
        "--write", action="store_true", help="write docs/corpus.md, and the list of what has to translate"
    )
    options = parser.parse_args()
    folder = os.environ.get("DSCONF_CORPUS")
    paths = sorted(Path(folder).rglob("*.json")) if folder else []
    if not paths:
        print("corpus: set DSCONF_CORPUS to a folder with JSON configs", file=sys.stderr)
        return 2
    if options.sample:
        show_sample(corpus_yaml() if options.yaml else paths, options.sample, options.seed)
        return 0
    if options.write:
        outcomes = {path: reasons(path) for path in configs()}
        page = with_table(PAGE.read_text(encoding="utf-8"), TABLE, table(paths))
        page = with_table(page, TRANSLATED, translated(outcomes))
        found, skipped = yaml_tables(in_yaml())
        PAGE.write_text(with_table(with_table(page, YAML, found), SKIPPED, skipped), encoding="utf-8")
        names = [named(path) for path, (status, _) in outcomes.items() if status == 0]
        LIST.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
        return 0
    crashes: list[str] = []
    print(f"{len(paths)} JSON files")
    for consumer in CONSUMERS:
        lint_all(paths, consumer, crashes)
    print(f"\n{len(in_yaml())} YAML files")
    lint_all(in_yaml(), None, crashes)
    translate_all(paths, crashes)
    for crash in crashes:
        print(crash, file=sys.stderr)
    print(f"\n{len(crashes)} unexpected exceptions")
    return int(bool(crashes))


def with_table(page: str, heading: str, rows: str) -> str:
    """A page with other rows in the table that begins with `heading`, and ends with an empty line or the page."""
    before, _, after = page.partition(heading)
    _, gap, rest = after.partition("\n\n")
    return before + rows + gap[1:] + rest


def reasons(path: Path) -> tuple[int, set[str]]:
    """The exit status of translating a file that has values for what it leaves open, and why it is not 0."""
    try:
        items = translate(str(path), "fsdp2", Context(), values_for(path), ()).report.items
    except Refused as refusal:
        findings = refusal.result.findings
        return 2, {f"{each.code} {each.rule}" for each in findings if each.severity == "error"}
    notes = {each.note for each in items if each.outcome == "unsupported"}
    return int(bool(notes)), {
        note.partition(";")[0] for note in notes if not note.startswith("it belongs to")
    }


def translated(outcomes: Mapping[Path, tuple[int, set[str]]]) -> str:
    """How many files translate, and how many do not for which reason, as Markdown; a file may have several."""
    counts = Counter((status, why) for status, found in outcomes.values() for why in found or {""})
    lines = [TRANSLATED, "| ---: | --- | ---: |"]
    rows = sorted(counts.items(), key=lambda row: (row[0][0], -row[1], row[0][1]))
    lines += [f"| {status} | {why} | {count} |" for (status, why), count in rows]
    return "\n".join(lines) + "\n"


def table(paths: Iterable[Path]) -> str:
    """For each rule and severity in how many files it finds something, by who reads them, as Markdown."""
    rules = load_rules()
    files: Counter[tuple[str, str, str, Consumer | None]] = Counter()
    for consumer in CONSUMERS:
        for path in paths:
            findings = lint_file(str(path), rules, Context(consumer), recognise=True).findings
            files.update({(each.code, each.rule, each.severity, consumer) for each in findings})
    lines = [TABLE, "| --- | --- | --- | ---: | ---: | ---: | ---: |"]
    for code, rule, severity in sorted({row[:3] for row in files}):
        counts = " | ".join(str(files[code, rule, severity, consumer] or "") for consumer in CONSUMERS)
        lines.append(f"| {code} | {rule} | {severity} | {counts} |")
    return "\n".join(lines) + "\n"


def in_yaml() -> list[Path]:
    """The YAML files of the corpus."""
    return [path for path in corpus_yaml() if path.suffix in (".yaml", ".yml")]


def yaml_tables(paths: Iterable[Path]) -> tuple[str, str]:
    """In how many YAML files a rule finds something, and how many are skipped for which reason, as Markdown."""
    files: Counter[tuple[str, str, str, str]] = Counter()
    skipped: Counter[str] = Counter()
    for path in paths:
        result = lint_file(str(path), load_rules(), Context(), recognise=True)
        files.update({(each.code, each.rule, each.severity, each.fails or "") for each in result.findings})
        skipped.update([result.skipped] if result.skipped else [])
    found = [YAML, "| --- | --- | --- | --- | ---: |"]
    found += [f"| {' | '.join(row)} | {count} |" for row, count in sorted(files.items())]
    reasons = [SKIPPED, "| --- | ---: |"]
    reasons += [f"| {reason} | {count} |" for reason, count in skipped.most_common()]
    return "\n".join(found) + "\n", "\n".join(reasons) + "\n"


def show_sample(paths: Iterable[Path], count: int, seed: int) -> None:
    """Print `count` warnings, of each consumer alike, with the text that they stand at."""
    rules = load_rules()
    found = [
        (path, consumer, finding)
        for consumer in (None, *CONSUMERS_SAMPLED)
        for path in paths
        for finding in lint_file(str(path), rules, Context(consumer), recognise=True).findings
        if finding.severity == "warning"
    ]
    for path, consumer, finding in Random(seed).sample(found, min(count, len(found))):
        place = finding.place
        line = path.read_text(encoding="utf-8").splitlines()[place.line - 1].strip()
        print(
            f"{path.name}:{place.line} ({consumer or 'unknown'}) {finding.code} {finding.message}\n    {line[:120]}"
        )


def lint_all(paths: Iterable[Path], consumer: Consumer | None, crashes: list[str]) -> None:
    """Lint every file for one consumer, and count what was found."""
    rules, context = load_rules(), Context(consumer)
    findings: Counter[tuple[str, str, str, str]] = Counter()
    files: Counter[tuple[str, str, str, str]] = Counter()
    states: Counter[str] = Counter()
    start = time.process_time()
    for path in paths:
        try:
            result = lint_file(str(path), rules, context)
        except Exception:
            crashes.append(f"lint {path} (consumer {consumer}): {traceback.format_exc()}")
            continue
        found = [(each.code, each.rule, each.severity, each.fails or "-") for each in result.findings]
        findings.update(found)
        files.update(set(found))
        state = "with findings" if found else "without findings"
        states["unusable" if result.unusable else "skipped" if result.skipped else state] += 1
    took = time.process_time() - start
    print(
        f"\nlint, consumer {consumer or 'unknown'}: {counted(states)}; {sum(states.values()) / took:,.0f} files/s"
    )
    print(f"  {'rule':<38} {'severity':<9} {'fails':<6} {'findings':>8} {'files':>6}")
    for row, count in sorted(findings.items()):
        code, rule, severity, fails = row
        print(f"  {code} {rule:<32} {severity:<9} {fails:<6} {count:>8} {files[row]:>6}")


def translate_all(paths: Iterable[Path], crashes: list[str]) -> None:
    """Translate every file to FSDP2, and count how that ended and why."""
    statuses: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    unsupported: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for path in paths:
        try:
            report = translate(str(path), "fsdp2", Context(), {}, ()).report
        except Refused as refusal:
            statuses["2 refused"] += 1
            refused.update({finding.rule for finding in refusal.result.findings})
            continue
        except Exception:
            crashes.append(f"translate {path}: {traceback.format_exc()}")
            continue
        statuses["0 written" if report.supported else "1 unsupported"] += 1
        outcomes[report.overall] += 1
        unsupported.update(
            {f"{each.key}: {each.note}" for each in report.items if each.outcome == "unsupported"}
        )
    print(f"\ntranslate --to fsdp2: {counted(statuses)}")
    print(f"  overall: {counted(outcomes)}")
    print(f"  refused for: {counted(refused)}")
    print("  unsupported, by files:")
    for reason, count in unsupported.most_common(MOST):
        print(f"  {count:>4}  {reason}")
    if len(unsupported) > MOST:
        print(f"        and {len(unsupported) - MOST} other reasons")


def counted(counts: Counter[str]) -> str:
    """Each name with its count, the most frequent first."""
    return ", ".join(f"{name}: {count}" for name, count in counts.most_common()) or "none"


if __name__ == "__main__":
    sys.exit(main())
