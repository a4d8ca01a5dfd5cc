"""Which parameters the classes take that DeepSpeed builds for `optimizer` and `scheduler` (0.19.8, torch 2.13).

They get `params` as keyword arguments, so that one that the class does not have is a TypeError.
"""

from __future__ import annotations

_ADAM = "lr betas eps weight_decay"
_ENGINE = "torch_adam adam_w_mode fp32_optimizer_states"
"""What the engine takes out of the parameters of an Adam before it builds one."""
_MOVES = "foreach maximize differentiable"

OPTIMIZER_ARGUMENTS = {
    "FusedAdam": f"{_ADAM} bias_correction amsgrad set_grad_none {_ENGINE}",
    "DeepSpeedCPUAdam": f"{_ADAM} bias_correction amsgrad {_ENGINE}",
    "ZenFlowCPUAdam": f"{_ADAM} bias_correction amsgrad {_ENGINE}",
    "DeepSpeedCPUAdagrad": "lr eps weight_decay amsgrad fp32_optimizer_states",
    "DeepSpeedCPULion": "lr betas weight_decay fp32_optimizer_states",
    "FusedLion": "lr betas weight_decay set_grad_none",
    "FusedLamb": f"{_ADAM} bias_correction eps_inside_sqrt max_coeff min_coeff amsgrad",
    "MuonWithAuxAdam": f"{_ADAM} momentum muon_lr adam_lr ns_method per_head_muon {_ENGINE}",
    "torch.optim.ASGD": f"lr lambd alpha t0 weight_decay capturable {_MOVES}",
    "torch.optim.Adadelta": f"lr rho eps weight_decay capturable {_MOVES}",
    "torch.optim.Adafactor": "lr beta2_decay eps d weight_decay foreach maximize",
    "torch.optim.Adagrad": f"lr lr_decay weight_decay initial_accumulator_value eps fused {_MOVES}",
    "torch.optim.Adam": f"{_ADAM} amsgrad capturable fused decoupled_weight_decay {_MOVES} {_ENGINE}",
    "torch.optim.AdamW": f"{_ADAM} amsgrad capturable fused {_MOVES} {_ENGINE}",
    "torch.optim.Adamax": f"{_ADAM} capturable {_MOVES}",
    "torch.optim.LBFGS": "lr max_iter max_eval tolerance_grad tolerance_change history_size line_search_fn",
    "torch.optim.NAdam": f"{_ADAM} momentum_decay decoupled_weight_decay capturable {_MOVES}",
    "torch.optim.RAdam": f"{_ADAM} decoupled_weight_decay capturable {_MOVES}",
    "torch.optim.RMSprop": f"lr alpha eps weight_decay momentum centered capturable {_MOVES}",
    "torch.optim.Rprop": f"lr etas step_sizes capturable {_MOVES}",
    "torch.optim.SGD": f"lr momentum dampening weight_decay nesterov fused {_MOVES}",
    "torch.optim.SparseAdam": "lr betas eps maximize",
}
"""By class the keys that `optimizer.params` may have. MuonWithAuxAdam passes over all others in silence."""

_WARMUP = "warmup_num_steps warmup_type last_batch_iteration"

SCHEDULER_ARGUMENTS = {
    "WarmupLR": ("", f"warmup_min_lr warmup_max_lr {_WARMUP}"),
    "WarmupDecayLR": ("total_num_steps", f"warmup_min_lr warmup_max_lr {_WARMUP}"),
    "WarmupCosineLR": ("total_num_steps", f"warmup_min_ratio cos_min_ratio {_WARMUP}"),
    "OneCycle": (
        "cycle_min_lr cycle_max_lr",
        (
            "decay_lr_rate cycle_first_step_size cycle_second_step_size cycle_first_stair_count "
            "cycle_second_stair_count decay_step_size cycle_momentum cycle_min_mom cycle_max_mom "
            "decay_mom_rate last_batch_iteration"
        ),
    ),
    "LRRangeTest": (
        "",
        (
            "lr_range_test_min_lr lr_range_test_step_size lr_range_test_step_rate lr_range_test_staircase "
            "last_batch_iteration"
        ),
    ),
}
"""By `scheduler.type` the keys that `scheduler.params` must have, and those that it may have."""

TORCH_SCHEDULERS = {
    "ConstantLR": ("", "factor total_iters last_epoch"),
    "CosineAnnealingLR": ("T_max", "eta_min last_epoch"),
    "CosineAnnealingWarmRestarts": ("T_0", "T_mult eta_min last_epoch"),
    "CyclicLR": (
        "base_lr max_lr",
        (
            "step_size_up step_size_down mode gamma scale_fn scale_mode cycle_momentum base_momentum max_momentum "
            "last_epoch"
        ),
    ),
    "ExponentialLR": ("gamma", "last_epoch"),
    "LinearLR": ("", "start_factor end_factor total_iters last_epoch"),
    "MultiStepLR": ("milestones", "gamma last_epoch"),
    "OneCycleLR": (
        "max_lr",
        (
            "total_steps epochs steps_per_epoch pct_start anneal_strategy cycle_momentum base_momentum max_momentum "
            "div_factor final_div_factor three_phase last_epoch"
        ),
    ),
    "PolynomialLR": ("", "total_iters power last_epoch"),
    "ReduceLROnPlateau": ("", "mode factor patience threshold threshold_mode cooldown min_lr eps"),
    "StepLR": ("step_size", "gamma last_epoch"),
    "LambdaLR": ("lr_lambda", "last_epoch"),
    "MultiplicativeLR": ("lr_lambda", "last_epoch"),
    "SequentialLR": ("schedulers milestones", "last_epoch"),
    "ChainedScheduler": ("", ""),
}
"""The same for the classes of torch.optim.lr_scheduler, which DeepSpeed finds by their exact name."""


def scheduler_known(name: object, version: str | None = None) -> bool:
    """Whether DeepSpeed finds a class for this `scheduler.type`; it is the same in every version."""
    return name in SCHEDULER_ARGUMENTS or name in TORCH_SCHEDULERS
