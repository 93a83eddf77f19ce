"""The learning rate, by the step and the spent budget."""

from nmt.config import TrainSettings


def learning_rate(settings: TrainSettings, d_model: int, step: int, spent: float) -> float:
    """Return the learning rate of a step.

    The schedules, with lr = `train.lr`, w = `train.warmup` and t = `step`, counted from 1:

        inverse_sqrt  lr·min(t/w, √(w/t))
        constant      lr·min(t/w, 1)
        noam          lr·d_model^-0.5·min(t^-0.5, t·w^-1.5)  (Vaswani et al. 2017, equation 3)

    In the last part of the budget (a fraction of `train.cooldown`), the rate also falls linearly to 0. `spent` is the
    spent fraction of the budget, 0-1, or 0 if there is no budget.
    """
    # 1. Apply the schedule.
    warmup = settings.warmup
    if settings.schedule == "noam":
        scale = settings.lr * d_model**-0.5
        rate = scale * min(step**-0.5, step * warmup**-1.5)
    elif settings.schedule == "inverse_sqrt":
        rate = settings.lr * min(step / warmup, (warmup / step) ** 0.5)
    else:
        rate = settings.lr * min(step / warmup, 1.0)

    # 2. Apply the cooldown.
    if settings.cooldown and spent > 1 - settings.cooldown:
        rate *= max(1 - spent, 0.0) / settings.cooldown
    return float(rate)
