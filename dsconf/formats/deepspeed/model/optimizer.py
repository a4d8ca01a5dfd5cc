"""The section `optimizer`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dsconf.formats.key import Fill, Key
from dsconf.formats.section import Reads, Section


class OptimizerParams(Section):
    """The keyword arguments of the optimizer's class, and what DeepSpeed takes out before. Which of them a
    class knows depends on optimizer.type."""

    unknown = "depends"

    # DeepSpeed's own classes only notice a string in the first step, those of torch.optim at once.
    lr: Annotated[float, Key(auto=Fill("learning_rate", "the lr of DummyOptim"), quoted_fails="step")] = 0.001
    """The learning rate. Left out it depends on the class: 0.001 for Adam, Lamb and Lion, 0.01 for Adagrad,
    0.02 for Muon's matrices."""
    betas: Annotated[list[float], Key(auto=Fill("adam_beta1, adam_beta2"), quoted_fails="step")] = Field(
        default=[0.9, 0.999]
    )
    """The decay of the running averages of the gradient and of its square: Adam, Lamb, Lion."""
    eps: Annotated[float, Key(auto=Fill("adam_epsilon"), quoted_fails="step")] = 1e-08
    """A small number added to the divisor for stability; 1e-10 where Adagrad or Muon leave it out."""
    weight_decay: Annotated[
        float, Key(auto=Fill("weight_decay", "the weight_decay of DummyOptim"), quoted_fails="step")
    ] = 0.0
    """The strength of weight decay. Left out it is 0, but 0.01 with torch_adam and type AdamW."""
    momentum: Annotated[float, Key(quoted_fails="step")] = 0.95
    """The momentum of Muon; SGD and RMSprop of torch.optim start from 0 instead."""
    torch_adam: Annotated[bool, Key()] = False
    """Use PyTorch's Adam or AdamW instead of DeepSpeed's, also when the optimizer is offloaded."""
    adam_w_mode: Annotated[bool, Key()] = True
    """Decouple the weight decay. Type Adam is AdamW unless this is false; type AdamW ignores it."""
    bias_correction: Annotated[bool, Key()] = True
    """Correct the running averages in the first steps; only DeepSpeed's own Adam and Lamb take it."""
    amsgrad: Annotated[bool, Key()] = False
    """Use the AMSGrad variant; DeepSpeed's own classes refuse true, torch_adam takes it."""
    set_grad_none: Annotated[bool, Key()] = True
    """Free gradients instead of zeroing them; only DeepSpeed's GPU Adam and Lion take it."""
    fp32_optimizer_states: Annotated[bool, Key()] = True
    """Keep the states of an offloaded optimizer in float32."""
    foreach: Annotated[bool | None, Key()] = None
    """Update many tensors per call; only with torch_adam."""
    max_coeff: Annotated[float, Key()] = 10.0
    """Lamb: the upper limit of the trust ratio."""
    min_coeff: Annotated[float, Key()] = 0.01
    """Lamb: the lower limit of the trust ratio."""
    eps_inside_sqrt: Annotated[bool, Key()] = False
    """Lamb: add eps below the square root instead of after it."""
    muon_lr: Annotated[float | None, Key(quoted_fails="step")] = None
    """Muon: the learning rate of the matrices, in place of lr."""
    adam_lr: Annotated[float | None, Key(quoted_fails="step")] = None
    """Muon: the learning rate of everything else, in place of lr."""
    ns_method: Annotated[Literal["gram", "standard"], Key(), Reads(fails="init")] = "gram"
    """Muon: how the Newton-Schulz iteration is computed."""
    per_head_muon: Annotated[bool, Key()] = False
    """Muon: treat each attention head as a matrix of its own."""
    max_grad_norm: Annotated[
        float | None, Key(status="removed", replacement="gradient_clipping"), Reads(fails="init")
    ] = None
    """Not an argument of the optimizer any more: initialization fails. Clipping is set by
    gradient_clipping."""


class Optimizer(Section):
    """The optimizer that DeepSpeed builds, unless the script passes its own."""

    type: Annotated[str | None, Key(), Reads(fails="parse")] = None
    """Adam, AdamW, Adagrad, Lamb, Lion, Muon, MuAdam, MuAdamW or MuSGD in any case, or the exact name of a
    class of torch.optim. Without it the section is ignored."""
    params: Annotated[OptimizerParams | None, Key(), Reads(fails="parse")] = None
    """The arguments of the optimizer."""
    legacy_fusion: Annotated[bool, Key()] = False
    """Use the older fused update at stage 0 with fp16 or bf16."""
