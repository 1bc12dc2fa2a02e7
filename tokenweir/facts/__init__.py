"""Facts of GPUs and models: start values for the sidecar's cost fit, and what the emulator and simulator run
on."""

from tokenweir.facts.capacity import BLOCK, DoesNotFitError, kv_capacity
from tokenweir.facts.gpus import GPU_NAMES, Gpu, gpu
from tokenweir.facts.models import MODEL_NAMES, PRECISIONS, Model, model, precision
from tokenweir.facts.names import UnknownFactError
from tokenweir.facts.step_time import StepCost, StepTime, coefficients, step_time

__all__ = [
    "BLOCK",
    "GPU_NAMES",
    "MODEL_NAMES",
    "PRECISIONS",
    "DoesNotFitError",
    "Gpu",
    "Model",
    "StepCost",
    "StepTime",
    "UnknownFactError",
    "coefficients",
    "gpu",
    "kv_capacity",
    "model",
    "precision",
    "step_time",
]
