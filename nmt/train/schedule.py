"""The learning rate and the prediction rate as functions of the step and the spent budget."""

from nmt.config import TrainSettings


def learning_rate(settings: TrainSettings, d_model: int, step: int, progress: float) -> float:
    """Return the learning rate of a step.

    Inverse square root: lr·min(t/w, √(w/t)). Constant: lr·min(t/w, 1). Noam (Vaswani et al. 2017, equation 3):
    lr·d^-0.5·min(t^-0.5, t·w^-1.5). All decay linearly to 0 over the last part of the budget, a
    share of `cooldown`. The step t counts from 1; `progress` is the share of the budget already spent, 0-1, or 0 if
    there is no budget.
    """
    # 1. The schedule: warm-up, then decay.
    warmup = settings.warmup
    if settings.schedule == "noam":
        scale = settings.lr * d_model**-0.5
        rate = scale * min(step**-0.5, step * warmup**-1.5)
    elif settings.schedule == "inverse_sqrt":
        rate = settings.lr * min(step / warmup, (warmup / step) ** 0.5)
    else:
        rate = settings.lr * min(step / warmup, 1.0)

    # 2. The cooldown.
    if settings.cooldown and progress > 1 - settings.cooldown:
        rate *= max(1 - progress, 0.0) / settings.cooldown
    return float(rate)


def prediction_rate(settings: TrainSettings, progress: float) -> float:
    """Return the probability that the decoder reads the model's own prediction instead of the true token.

    In scheduled sampling it rises linearly with `progress`, 0-1 (Bengio et al. 2015, section 2.4).
    """
    if settings.decoder_input == "teacher_forcing":
        return 0.0
    return settings.sampling_rate * progress
