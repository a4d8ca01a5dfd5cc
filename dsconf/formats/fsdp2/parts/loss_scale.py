"""DeepSpeed's dynamic loss scale."""

from __future__ import annotations

REFILLED = False

LOSS_SCALE = 65536.0
SCALE_WINDOW = 1000
HYSTERESIS = 2
MIN_LOSS_SCALE = 1.0


class LossScaler:
    """Halves the scale at the HYSTERESIS-th overflow, doubles it after SCALE_WINDOW steps without one.

    torch.amp.GradScaler has neither the hysteresis nor the minimum.
    """

    def __init__(self) -> None:
        self.scale = LOSS_SCALE
        self.overflows_left = HYSTERESIS
        self.good_steps = 0

    def update(self, overflow: bool) -> None:
        """Count a step; raises OverflowError where the scale can't fall any more."""
        if overflow:
            self.good_steps = 0
            if self.overflows_left != 1:
                self.overflows_left -= 1
            elif self.scale == MIN_LOSS_SCALE:
                raise OverflowError(f"gradients overflow at the smallest loss scale, {MIN_LOSS_SCALE}")
            else:
                self.scale = max(self.scale / 2, MIN_LOSS_SCALE)
            return
        if REFILLED:
            self.overflows_left = HYSTERESIS
        if self.good_steps > 0 and self.good_steps % SCALE_WINDOW == 0:
            self.scale *= 2
            self.overflows_left = HYSTERESIS
        self.good_steps += 1


loss_scaler = LossScaler()
