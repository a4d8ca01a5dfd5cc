"""From training arguments to the Plan: what Trainer trains with them, on its own defaults where nothing is written."""

from __future__ import annotations

from typing import Any

from dsconf.config.effective import Config, Facts
from dsconf.formats.fsdp_precision import Kind, precision
from dsconf.formats.outcome import Item
from dsconf.formats.reading import Reading
from dsconf.formats.trainer.facts import FACTS
from dsconf.formats.trainer.notes import SECTION, Notes
from dsconf.formats.trainer.read_section import read_section
from dsconf.formats.training.read import FATES, as_reduced, leftover, read_batch, read_clipping, read_word
from dsconf.formats.training.read_optimizer import read_optimizer
from dsconf.formats.training.read_schedule import read_length, read_schedule
from dsconf.plan import Batch, Clipping, Plan, Precision, Sharding, Unresolved

_EACH = "accelerator_config"
_RECOMPUTE = "activation_checkpointing"
_OTHER_FILE = "what stands in another file is not read"
_OWN_KEY = "no argument of TrainingArguments (transformers 5.24): it is the script's own"
_UNREAD = "fsdp is not on: nobody reads it"


def read(config: Config) -> Reading:
    """Read a Config that lint has no error for.

    Under DeepSpeed that is what the arguments themselves say; `merge` puts it together with the DeepSpeed config.
    A section fsdp_config alone leaves batch, optimizer, schedule, clipping and precision open.
    """
    return _Reader(config, Facts(_as_it_stands(config), FACTS)).run()


def _as_it_stands(config: Config) -> Config:
    """The Config for facts: arguments given beside a section alone don't make whole arguments of it."""
    of_section = {path: value for path, value in config.overrides.items() if path.startswith(SECTION)}
    if not config.overrides or any(item.path.partition(".")[0] != SECTION for item in config.written):
        return config
    return Config(
        config.document, config.table, config.context, of_section, config.fills, config.format, config.beside
    )


class _Reader(Notes):
    def run(self) -> Reading:
        deepspeed = self.facts.value("deepspeed_on") is True
        on = self.facts.value("fsdp_on") is True and not deepspeed
        section = read_section(self) if on else None
        kind: Kind = "ddp" if section is None else "fsdp1" if section.version == 1 else "fsdp2"
        self._elsewhere()
        if section is None:
            self._unread(deepspeed=deepspeed)
        sharding = Sharding(partition="nothing", reshard_after_forward=False)
        each = self._reduces_each(kind)
        divided = section is not None and section.sharding().partition == "parameters"
        keeps = divided and not each
        given: dict[str, Any] = (
            self._of_arguments(kind, each=each, keeps=keeps)
            if self.whole
            else self._of_overrides(kind, each=each)
        )
        if section is not None:
            given |= {
                "offload": section.offloaded,
                "wrapping": section.wrapping,
                "checkpoint": section.checkpoint,
            }
            sharding = as_reduced(section.sharding(), given["batch"], each=each or not self.whole)
        plan = Plan(sharding=sharding, recompute=self._recompute(section and section.recompute), **given)
        self._leftovers()
        told = self.arguments
        source = "trainer-deepspeed" if deepspeed else "trainer" if section is None else f"trainer-{kind}"
        return Reading(
            plan, told.fields, told.items, told.remarks, told.in_force, {}, source, self.config.as_written
        )

    def _of_arguments(self, kind: Kind, *, each: bool, keeps: bool) -> dict[str, Any]:
        told = self.arguments
        optimizer, schedule = read_optimizer(told), read_schedule(told)
        return {
            "optimizer": optimizer,
            "schedule": schedule,
            "length": read_length(told, schedule),
            "batch": read_batch(told, keeps=keeps),
            "clipping": read_clipping(told),
            "precision": self._precision(kind, each=each),
        }

    def _of_overrides(self, kind: Kind, *, each: bool) -> dict[str, Any]:
        """What is said beside a section alone; all else stays open."""
        told, found = self.arguments, dict(_OPEN)
        if told.has("bf16") or told.has("fp16"):
            found["precision"] = self._precision(kind, each=each)
        if told.has("max_grad_norm"):
            found["clipping"] = read_clipping(told)
        if told.has("learning_rate") or told.has("optim"):
            found["optimizer"] = read_optimizer(told)
        if told.has("lr_scheduler_type"):
            found["schedule"] = read_schedule(told)
        if told.has("max_steps") or told.has("num_train_epochs"):
            found["length"] = read_length(told, found.get("schedule"))
        sizes = {"micro": "per_device_train_batch_size", "accumulation": "gradient_accumulation_steps"}
        known = {field: told.whole(name) for field, name in sizes.items() if told.has(name)}
        for field in known:
            told.place(sizes[field], f"batch.{field}")
        found["batch"] = Batch.model_validate(known)
        return found

    def _precision(self, kind: Kind, *, each: bool) -> Precision:
        word = read_word(self.arguments)
        if isinstance(word, Unresolved):
            return Precision(compute=word)
        found = precision(word, kind)
        return found.model_copy(update={"accumulate": "fp32"}) if each and word != "no" else found

    def _reduces_each(self, kind: Kind) -> bool:
        """Whether gradients are reduced on each micro batch, so that shards of them are added up, in fp32."""
        raw = self.arguments.raw(_EACH)
        inner = raw.get("gradient_accumulation_kwargs") if isinstance(raw, dict) else None
        each = isinstance(inner, dict) and inner.get("sync_each_batch") is True and kind != "ddp"
        if each:
            self.arguments.place(_EACH, "precision.accumulate")
        if not isinstance(raw, dict):
            if self.arguments.has(_EACH):
                self.arguments.unsupported(_EACH, _OTHER_FILE, "write it in this file")
        elif raw.get("split_batches"):
            note = "split_batches: the batch size is that of all GPUs together"
            action = "write what one GPU takes, and leave split_batches out"
            self.arguments.unsupported(_EACH, note, action)
        elif not each:
            note = "nothing in it changes what is trained"
            self.arguments.item(Item(_EACH, raw, "no-effect", note=note))
        return each

    def _recompute(self, in_section: bool | None) -> bool | None:
        given = self.arguments.has(_RECOMPUTE)
        if given:
            self.arguments.place(_RECOMPUTE, "recompute")
        if in_section is not None:
            if given:
                self.arguments.fields.pop(_RECOMPUTE)
                self.item(_RECOMPUTE, "no-effect", f"{SECTION}.{_RECOMPUTE} counts")
            return in_section
        if not given:
            return None
        on = self.arguments.flag(_RECOMPUTE)
        return on if isinstance(on, bool) else None

    def _elsewhere(self) -> None:
        """Settings that a translation can't follow."""
        if isinstance(self.arguments.raw(SECTION), str):
            self.item(SECTION, "unsupported", _OTHER_FILE, "translate that file, or write the section here")
        if self.value(f"{SECTION}.xla") is True:
            self.item(f"{SECTION}.xla", "unsupported", "FSDP of PyTorch/XLA is not translated")
        removed = {
            name: spec for name, spec in self.config.table["keys"].items() if spec.get("status") == "removed"
        }
        for name, spec in removed.items():
            note = f"transformers 5.24 has no such argument: {spec['replacement']} stands for it"
            self.item(name, "rejected-by-source", note)
        if self.arguments.has("parallelism_config"):
            note = "the sizes of a ParallelismConfig are not read"
            action = "write the groups of ranks in the target yourself"
            self.arguments.unsupported("parallelism_config", note, action)

    def _unread(self, *, deepspeed: bool) -> None:
        if deepspeed:
            self.arguments.fields["deepspeed"] = "sharding.partition"
            self.arguments.idle("nothing is divided by FSDP", "fsdp")
        elif self.arguments.has("deepspeed"):
            self.arguments.idle("it is off", "deepspeed")
        if not deepspeed and self.arguments.has("fsdp"):
            self.arguments.place("fsdp", "sharding.partition")
        told = {item.key for item in self.arguments.items}
        for item in self.in_section:
            if item.path not in told:
                self.item(item.path, "no-effect", _UNREAD)
        if isinstance(self.arguments.raw(SECTION), str):
            self.arguments.idle(_UNREAD, SECTION)

    def _leftovers(self) -> None:
        """What becomes of all other arguments."""
        told = {item.key for item in self.arguments.items} | self.arguments.fields.keys()
        paths = dict.fromkeys([*(item.path for item in self.config.written), *self.config.overrides])
        for path in paths:
            if "." in path or path in told or path == SECTION:
                continue
            if path in FATES:
                leftover(self.arguments, path)
            elif self.config.raw(path) is None and path in self.config.table["keys"]:
                self.item(path, "no-effect", "null says no more than leaving it out")
            elif path not in self.config.table["keys"]:
                self.item(path, "no-effect", _OWN_KEY)
        for path in paths:
            told = {item.key for item in self.arguments.items} | self.arguments.fields.keys()
            if path in FATES and path not in told:
                self.item(path, "no-effect", "null says no more than leaving it out")


_OPEN: dict[str, Any] = {
    "batch": Batch(),
    "clipping": Clipping(max_norm=Unresolved(key="max_grad_norm")),
    "precision": Precision(compute=Unresolved(key="bf16")),
}
"""What a section fsdp_config alone leaves open."""
