"""What a section fsdp_config means, in Accelerate, Trainer and Axolotl alike, and the section that a Plan becomes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dsconf.formats.outcome import Landing, Outcome
from dsconf.plan import Checkpoint, Offload, Plan, Sharding, Wrapping

TRANSFORMER, BY_SIZE, NO_WRAP = "TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"
HYBRID = ("HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
_WEIGHTS = {"FULL_STATE_DICT": "full", "SHARDED_STATE_DICT": "sharded", "LOCAL_STATE_DICT": "local"}
_STATE_DICTS = {weights: word for word, weights in _WEIGHTS.items()}
_KEPT = "the weights are whole from the forward to the backward pass, and divided between steps"


class Fate(NamedTuple):
    """What becomes of a key that has no place in the Plan."""

    outcome: Outcome
    note: str
    action: str | None = None


class Section(NamedTuple):
    """The settings of a section, as they arrive in the workers."""

    version: int
    strategy: str = "FULL_SHARD"
    """Only FSDP1 goes by it."""
    reshard: bool = True
    """Only FSDP2 goes by it."""
    offload: bool = False
    pinned: bool = True
    policy: str = NO_WRAP
    classes: tuple[str, ...] = ()
    """Of TRANSFORMER_BASED_WRAP; empty: those that the model names itself."""
    min_params: int = 0
    """Of SIZE_BASED_WRAP."""
    state_dict: str | None = None
    loads_on_rank_0: bool | None = None
    syncs: bool = True
    """Only FSDP1 goes by it: whether the weights of rank 0 are sent to all others."""
    recompute: bool | None = None

    @property
    def replicated(self) -> bool:
        """Whether nothing is divided."""
        return self.version == 1 and self.strategy == "NO_SHARD"

    @property
    def hybrid(self) -> bool:
        """Whether the ranks of each machine hold a copy of the whole state."""
        return self.version == 1 and self.strategy in HYBRID

    def sharding(self, group: int | None = None) -> Sharding:
        """What is divided; `group` are the ranks that it is divided over, None for all."""
        if self.replicated:
            return Sharding(partition="nothing", reshard_after_forward=False)
        whole = (
            self.strategy in ("SHARD_GRAD_OP", "HYBRID_SHARD_ZERO2")
            if self.version == 1
            else not self.reshard
        )
        partition = "gradients" if whole else "parameters"
        return Sharding(partition=partition, reshard_after_forward=not whole, group=group)

    @property
    def offloaded(self) -> Offload:
        """FSDP offloads all or nothing."""
        return Offload(parameters=self.offload, optimizer=self.offload, pinned=self.offload and self.pinned)

    @property
    def wrapping(self) -> Wrapping:
        """FSDP2 also makes units of the embedding, and of the last norm with the head."""
        ends = self.version == 2
        if self.policy == TRANSFORMER:
            return Wrapping(block_classes=self.classes, separate_ends=ends)
        if self.policy == BY_SIZE and self.min_params > 0:
            return Wrapping(min_params=self.min_params, separate_ends=ends)
        return Wrapping(root_only=True, separate_ends=ends)

    @property
    def checkpoint(self) -> Checkpoint:
        """How weights are saved and loaded; without a word FSDP1 gathers them, and FSDP2 saves what each rank has."""
        default = "FULL_STATE_DICT" if self.version == 1 else "SHARDED_STATE_DICT"
        weights = _WEIGHTS[self.state_dict or default]
        return Checkpoint.model_validate({"weights": weights, "loads_on_rank_0": self.loads_on_rank_0})

    def fields(self) -> dict[str, str]:
        """The field of the Plan that each key goes to, by its name without a prefix."""
        wrapping = {TRANSFORMER: "block_classes", BY_SIZE: "min_params", NO_WRAP: "root_only"}[self.policy]
        if self.policy == BY_SIZE and self.min_params <= 0:
            wrapping = "root_only"
        classes = (
            {"transformer_layer_cls_to_wrap": "wrapping.block_classes"} if self.policy == TRANSFORMER else {}
        )
        found = {
            # Of several keys the first one is said to be where a field comes from.
            **(classes if self.classes else {}),
            "version": "sharding.partition",
            "offload_params": "offload.parameters",
            "auto_wrap_policy": f"wrapping.{wrapping}",
            "state_dict_type": "checkpoint.weights",
            "cpu_ram_efficient_loading": "checkpoint.loads_on_rank_0",
            "activation_checkpointing": "recompute",
            **classes,
        }
        if self.policy == BY_SIZE:
            found["min_num_params"] = f"wrapping.{wrapping}"
        if self.version == 1:
            found["sharding_strategy"] = "sharding.group" if self.hybrid else "sharding.partition"
        else:
            found["reshard_after_forward"] = "sharding.partition"
        return found

    def fates(self) -> Iterator[tuple[str, Fate]]:
        """What becomes of the keys that go to no field, by their name without a prefix."""
        if self.version == 1:
            note = f"FSDP1 does not read it: it goes by sharding_strategy, which is {self.strategy}"
            yield "reshard_after_forward", Fate("no-effect", note)
        else:
            note = f"FSDP2 does not read it: it goes by reshard_after_forward, which is {_word(self.reshard)}"
            yield "sharding_strategy", Fate("no-effect", note)
        if self.policy != TRANSFORMER:
            note = f"{TRANSFORMER} reads it, and the policy is {self.policy}"
            yield "transformer_layer_cls_to_wrap", Fate("no-effect", note)
        if self.policy != BY_SIZE:
            yield "min_num_params", Fate("no-effect", f"{BY_SIZE} reads it, and the policy is {self.policy}")
        yield from _fsdp1_only(self)
        offload = "activation_checkpointing_offload"
        note = "what is kept of activations moves to CPU memory, which no translation writes"
        action = "put the forward pass in torch.autograd.graph.save_on_cpu()"
        yield offload, Fate("unsupported", note, action)
        note = "modules that FSDP leaves alone, which no translation writes"
        yield "ignored_modules", Fate("unsupported", note, "pass them to FSDP in your script")


def _fsdp1_only(section: Section) -> Iterator[tuple[str, Fate]]:
    """What becomes of the keys that FSDP1 alone has."""
    if section.version == 2:
        for name in ("backward_prefetch", "forward_prefetch", "use_orig_params", "limit_all_gathers"):
            yield name, Fate("no-effect", "FSDP2 has no such setting")
        note = "FSDP2 sends the weights of rank 0 where cpu_ram_efficient_loading is on"
        yield "sync_module_states", Fate("no-effect", note)
        return
    timing = "when units are gathered changes no number"
    yield (
        "backward_prefetch",
        Fate("no-effect", f"{timing}; FSDP2 gathers the next unit as BACKWARD_PRE does"),
    )
    yield "forward_prefetch", Fate("no-effect", timing)
    yield "limit_all_gathers", Fate("no-effect", f"{timing}; FSDP2 needs no such limit")
    note = "it decides how the optimizer sees the parameters, not what is trained; FSDP2 shows those of the model"
    yield "use_orig_params", Fate("no-effect", note)
    if section.loads_on_rank_0:
        yield (
            "sync_module_states",
            Fate("exact", "cpu_ram_efficient_loading sends the weights of rank 0 to all"),
        )
    elif section.syncs:
        note = (
            "FSDP2 does not send the weights of rank 0 to the others unless cpu_ram_efficient_loading is on"
        )
        action = "call accelerate.utils.set_seed() before you build the model, so that all ranks begin alike"
        yield "sync_module_states", Fate("approximate", note, action)
    else:
        yield "sync_module_states", Fate("exact", "each rank begins with the weights that it has")


class Setting(NamedTuple):
    """A line of a section for FSDP2."""

    name: str
    """Without a prefix."""
    value: bool | int | str
    field: str
    """The field of the Plan that it stands for."""


class Written(NamedTuple):
    """A section for FSDP2: the settings in alphabetical order, and what became of the fields of the Plan."""

    settings: list[Setting]
    landings: dict[str, Landing]


def write_section(plan: Plan, offload_key: str = "offload_params") -> Written:
    """The section for FSDP2 that a Plan becomes, which has to divide something; `offload_key` differs by library.

    Groups of ranks, dtypes and what belongs to the script have to land elsewhere.
    """
    settings: list[Setting] = [Setting("version", 2, "sharding.partition")]
    landings: dict[str, Landing] = {}
    for part in (_write_sharding, _write_wrapping, _write_checkpoint):
        part(plan, settings, landings)
    _write_offload(plan, offload_key, settings, landings)
    if plan.recompute is not None:
        settings.append(Setting("activation_checkpointing", plan.recompute, "recompute"))
        target = f"activation_checkpointing: {_word(plan.recompute)}"
        landings["recompute"] = Landing("exact", target, "each unit is computed again" * plan.recompute)
    return Written(sorted(settings), landings)


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _write_sharding(plan: Plan, settings: list[Setting], landings: dict[str, Landing]) -> None:
    sharding, field = plan.sharding, "sharding.partition"
    whole = sharding.partition != "parameters" or sharding.reshard_after_forward is False
    settings.append(Setting("reshard_after_forward", not whole, field))
    target = f"reshard_after_forward: {_word(not whole)}"
    notes = {
        "nothing": f"{_KEPT}, as are gradients and optimizer",
        "optimizer": f"{_KEPT}, as are the gradients: less memory, the same numbers",
        "gradients": f"{_KEPT}: less memory, the same numbers",
        "parameters": _KEPT if whole else "",
    }
    landings[field] = Landing("exact", target, notes[sharding.partition])
    group = sharding.reshard_after_forward
    if isinstance(group, int) and not isinstance(group, bool):
        note = f"no number of ranks can be said here: weights are gathered again from all ranks, not from {group}"
        landings["sharding.reshard_after_forward"] = Landing(
            "close", target, f"{note}; less memory, more traffic, the same numbers"
        )
    else:
        landings["sharding.reshard_after_forward"] = landings[field]
    if sharding.sums_gradients:
        note = "FSDP averages gradients"
        action = "multiply the loss by the number of ranks before its backward pass"
        landings["sharding.sums_gradients"] = Landing("approximate", "", note, action)
    else:
        landings["sharding.sums_gradients"] = Landing("exact", "", "FSDP averages gradients, too")
    own = "linear layers are torch's, which may round otherwise"
    landings["sharding.own_linear"] = Landing(
        "close" if sharding.own_linear else "exact", "", own * bool(sharding.own_linear)
    )


def _write_wrapping(plan: Plan, settings: list[Setting], landings: dict[str, Landing]) -> None:
    wrapping, policy = plan.wrapping, TRANSFORMER
    landings["wrapping.unused_parameters"] = _unused(plan)
    field = "wrapping.block_classes"
    if wrapping.block_classes:
        classes = ",".join(wrapping.block_classes)
        settings.append(Setting("transformer_layer_cls_to_wrap", classes, field))
        # What the source says of units, where somebody names their classes.
        given = Landing("no-effect", f"auto_wrap_policy: {policy}", "the classes of the units are given")
        landings |= {"wrapping.root_only": given, "wrapping.min_params": given}
    elif wrapping.root_only:
        policy, field = NO_WRAP, "wrapping.root_only"
    elif wrapping.min_params is not None:
        field = "wrapping.min_params"
    settings.append(Setting("auto_wrap_policy", policy, field))
    landings[field] = _units(wrapping, f"auto_wrap_policy: {policy}")
    ends = "the embedding, and the last norm with the head, are units of their own"
    same = "" if wrapping.separate_ends else f"{ends}: no number changes"
    landings["wrapping.separate_ends"] = Landing("exact", "", same)


_NAMES_NONE = "for a model that names none say the classes of its blocks with --blocks"


def _units(wrapping: Wrapping, target: str) -> Landing:
    if wrapping.block_classes:
        return Landing("exact", f"transformer_layer_cls_to_wrap: {','.join(wrapping.block_classes)}")
    if wrapping.root_only:
        return Landing("exact", target)
    if wrapping.min_params is not None:
        note = (
            f"{BY_SIZE} of FSDP2 takes an nn.ModuleList that is large enough for a unit, and stops: the blocks that "
            "a transformers model names itself are units instead; other memory, the same numbers"
        )
        return Landing("approximate", target, note, _NAMES_NONE)
    note = "the classes are those that a transformers model names itself (_no_split_modules)"
    return Landing("exact", target, note, _NAMES_NONE)


def _unused(plan: Plan) -> Landing:
    if not plan.wrapping.unused_parameters:
        return Landing("exact")
    note = "an expert without tokens has no gradient on its rank, which FSDP2 then adds up wrongly"
    action = "call set_reduce_scatter_unused_params(True) of every FSDPModule after prepare() (torch 2.13)"
    return Landing("approximate", "", note, action)


def _write_checkpoint(plan: Plan, settings: list[Setting], landings: dict[str, Landing]) -> None:
    weights, on_rank_0 = plan.checkpoint.weights, plan.checkpoint.loads_on_rank_0
    if weights is not None:
        word = _STATE_DICTS["sharded" if weights == "local" else weights]
        settings.append(Setting("state_dict_type", word, "checkpoint.weights"))
        note = "FSDP2 has no flat parameters: load checkpoints of LOCAL_STATE_DICT with FSDP1, and save them anew"
        local = weights == "local"
        landings["checkpoint.weights"] = Landing(
            "approximate" if local else "exact", f"state_dict_type: {word}", note if local else ""
        )
    if on_rank_0 is not None:
        settings.append(Setting("cpu_ram_efficient_loading", on_rank_0, "checkpoint.loads_on_rank_0"))
        landings["checkpoint.loads_on_rank_0"] = Landing(
            "exact", f"cpu_ram_efficient_loading: {_word(on_rank_0)}"
        )


def _write_offload(plan: Plan, key: str, settings: list[Setting], landings: dict[str, Landing]) -> None:
    offload = plan.offload
    on, both = offload.parameters or offload.optimizer, offload.parameters and offload.optimizer
    settings.append(Setting(key, on, "offload.parameters" if offload.parameters else "offload.optimizer"))
    target = f"{key}: {_word(on)}"
    rest = "the parameters and gradients move" if offload.optimizer else "the optimizer's state and step move"
    note = "" if both or not on else f"{rest} to CPU memory as well: it is all or nothing; no number changes"
    landing = Landing("exact" if both or not on else "approximate", target, note)
    landings["offload.parameters"] = landings["offload.optimizer"] = landing
    same = not on or offload.pinned
    landings["offload.pinned"] = Landing(
        "exact", target, "" if same else "page-locked memory: no number changes"
    )
