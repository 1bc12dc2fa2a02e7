"""The documents in Redis, as pydantic models; each has a file of its own.

`lua/tokenweir/contract.lua` and `docs/contract.md` are generated from them, so no field is named twice. Times
that end in `_ms` are milliseconds; token counts are whole tokens. A value that is not known is null, never an
invented number.
"""

from __future__ import annotations

from tokenweir.contract.completion import Completion
from tokenweir.contract.enums import Outcome, Policy, Priority, QueueOrder, Role, State, TransferAdapter
from tokenweir.contract.lease import BackendLoad, KeyUse, Lease, QueueState
from tokenweir.contract.predictor import PredictorCurrent, PredictorModel
from tokenweir.contract.record import Document, Record
from tokenweir.contract.settings import (
    HeaderSettings,
    HealthSettings,
    KeySettings,
    Limits,
    ModelSettings,
    PredictorSettings,
    SessionSettings,
    Settings,
    TransferSettings,
)
from tokenweir.contract.snapshot import (
    Backend,
    Cost,
    Foreign,
    ModelControl,
    PolicySettings,
    QueueClass,
    QueueClasses,
    QueueLimits,
    Snapshot,
)
from tokenweir.contract.stats import Histories, History, ModelStats, Stats
from tokenweir.contract.values import Count, Id, ModelName, PathPrefix, Positive, Share

__all__ = [
    "DOCUMENTS",
    "Backend",
    "BackendLoad",
    "Completion",
    "Cost",
    "Count",
    "Document",
    "Foreign",
    "HeaderSettings",
    "HealthSettings",
    "Histories",
    "History",
    "Id",
    "KeySettings",
    "KeyUse",
    "Lease",
    "Limits",
    "ModelControl",
    "ModelName",
    "ModelSettings",
    "ModelStats",
    "Outcome",
    "PathPrefix",
    "Policy",
    "PolicySettings",
    "Positive",
    "PredictorCurrent",
    "PredictorModel",
    "PredictorSettings",
    "Priority",
    "QueueClass",
    "QueueClasses",
    "QueueLimits",
    "QueueOrder",
    "QueueState",
    "Record",
    "Role",
    "SessionSettings",
    "Settings",
    "Share",
    "Snapshot",
    "State",
    "Stats",
    "TransferAdapter",
    "TransferSettings",
]

DOCUMENTS: dict[str, type[Document]] = {
    "snapshot": Snapshot,
    "settings": Settings,
    "stats": Stats,
    "histories": Histories,
    "lease": Lease,
    "predictor_current": PredictorCurrent,
    "predictor_model": PredictorModel,
}
