"""Prompts held out, and a whole source held out: what single prompts tell, without keys, sessions, system
prompts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from bench.predictor import baselines, figures
from bench.predictor.figures import Judged
from bench.predictor.folds import FOLDS, Folds, Plan, judged, open_model
from model import bootstrap, chats
from model.core import Core, Floats
from model.dataset import thin
from model.recorded import Recorded

LATER: Final = 1e9
"""Added to the times of rows that come after all known ones."""
SAID: Final = (
    "reference", "median", "q90", "running", "running_q90", "constant", "histogram", "rules", "offline",
)  # fmt: skip
Rows = np.ndarray[Any, np.dtype[np.int64]]
Found = dict[str, dict[str, dict[str, float]]]


def _constants(names: np.ndarray[Any, np.dtype[np.str_]], output: Floats, known: Rows, asked: Rows) -> Floats:
    """The 90 % quantile of the known outputs of each asked row's model; of all where there is none."""
    overall = float(np.quantile(output[known], 0.9))
    of_name = {
        name: float(np.quantile(output[known][names[known] == name], 0.9)) for name in np.unique(names[known])
    }
    return np.array([of_name.get(name, overall) for name in names[asked]])


@dataclass(frozen=True)
class Asked:
    """Rows that were judged with their prompts held out, and what was said of each, in tokens."""

    prompt: Rows
    output: Floats
    median: Floats


def prompts(core: Core, recorded: Recorded, folds: Folds, plan: Plan, seed: int) -> tuple[Found, Asked]:
    """Every prompt predicted by a model that has not seen it; by method, then source. And what was said.

    Per fold a worker that has seen the outputs of the other folds, as it would after some hours, meets the
    prompts of this one. "Model" is the report that an output is from, for all methods."""
    rows = recorded.take(judged(recorded, plan, seed))
    n = len(rows.output)
    names = bootstrap.applications(rows)
    requests, stream = chats.stream(core, rows, seed + 200, histories=False)
    public, model = np.unique(names, return_inverse=True)
    of_row = folds.of_prompt[rows.prompt]
    said: dict[str, Floats] = {name: np.full(n, np.nan) for name in SAID}
    train_rows = recorded.take(folds.train)
    together = np.concatenate((train_rows.prompt, rows.prompt))
    for fold in range(FOLDS):
        late = of_row == fold
        asked, known = np.flatnonzero(late), np.flatnonzero(~late)
        order = asked[np.argsort(stream.arrival[asked])]
        before = known[np.argsort(stream.arrival[known])]
        shifted = replace(
            stream,
            names=[str(name) for name in public],
            model=model.astype(np.int64),
            arrival=stream.arrival + LATER * late,
            finish=stream.finish + LATER * late,
            fit=np.where(late, fold, -1),
        )
        predicted = core.replay(core.new_state(), folds.models, requests, shifted)
        said["median"][late], said["q90"][late] = predicted.median[late], predicted.q90[late]
        alone = core.replay(core.new_state(), [], requests, replace(shifted, fit=np.full(n, -1)))
        said["running"][late], said["running_q90"][late] = alone.median[late], alone.q90[late]
        output = rows.output
        said["reference"][late] = baselines.running_median(names.tolist(), output, order, before)[late]
        said["histogram"][late] = baselines.histogram(requests, output, order, before)[late]
        said["rules"][late] = baselines.rules(
            core, requests, stream.limit, output, order=order, known=before
        )[late]
        said["constant"][late] = _constants(names, output, known, asked)
        train = np.flatnonzero(folds.of_prompt[train_rows.prompt] != fold)
        said["offline"][late] = baselines.offline(
            recorded.texts,
            together,
            np.concatenate((bootstrap.applications(train_rows), names)),
            np.concatenate((train_rows.output, rows.output)),
            train=train,
            test=len(train_rows.output) + asked,
            known=np.concatenate((train, len(train_rows.output) + known)),
        )
    of: dict[str, Any] = {"source": rows.source, "output": rows.output, "reference": said["reference"]}
    found = {
        "tokenweir": figures.by_source(
            Judged(**of, median=said["median"], q90=said["q90"], constant=said["constant"])
        ),
        "running figures": figures.by_source(
            Judged(**of, median=said["running"], q90=said["running_q90"], constant=said["constant"])
        ),
        "median per model": figures.by_source(Judged(**of, median=said["reference"])),
        "1.5 x input": figures.by_source(Judged(**of, median=baselines.by_input(requests))),
        "log-bucket histogram": figures.by_source(Judged(**of, median=said["histogram"])),
        "three rules": figures.by_source(Judged(**of, median=said["rules"])),
        "TF-IDF + boosting, offline": figures.by_source(Judged(**of, median=said["offline"])),
    }
    return found, Asked(rows.prompt, rows.output, said["median"])


def sources(core: Core, recorded: Recorded, plan: Plan, seed: int, tell: Callable[[str], None]) -> Found:
    """Every source met by a model that was trained from the others, by a worker that has seen none of its
    outputs.

    The reference is the median of the known sources, then the running median of each model as outputs come
    in."""
    rows = recorded.take(judged(recorded, plan, seed))
    train = thin(recorded.prompt, plan.of_a_prompt, seed)
    found: list[tuple[Judged, Judged]] = []
    for source in np.unique(rows.source):
        tell(f"seed {seed}: training without {source}")
        known = recorded.take(train[recorded.source[train] != source])
        model = open_model(core, bootstrap.dataset(core, known, seed + 300), f"without-{source}")
        part = rows.take(np.flatnonzero(rows.source == source))
        requests, stream = chats.stream(core, part, seed + 400, histories=False)
        names = bootstrap.applications(part)
        public, number = np.unique(names, return_inverse=True)
        n = len(part.output)
        stream = replace(
            stream,
            names=[str(name) for name in public],
            model=number.astype(np.int64),
            fit=np.zeros(n, np.int64),
        )
        predicted = core.replay(core.new_state(), [model], requests, stream)
        alone = core.replay(core.new_state(), [], requests, replace(stream, fit=np.full(n, -1)))
        reference = baselines.running_median(
            names.tolist(), part.output, np.argsort(stream.arrival), start=float(np.median(known.output))
        )
        constant = np.full(n, np.quantile(known.output, 0.9))
        of: dict[str, Any] = {
            "source": part.source,
            "output": part.output,
            "reference": reference,
            "constant": constant,
        }
        found.append(
            (
                Judged(**of, median=predicted.median, q90=predicted.q90),
                Judged(**of, median=alone.median, q90=alone.q90),
            )
        )
    ours, running = zip(*found, strict=True)
    return {
        "tokenweir": figures.by_source(_join(ours)),
        "running figures": figures.by_source(_join(running)),
    }


def _join(parts: tuple[Judged, ...]) -> Judged:
    def column(name: str) -> Any:
        return np.concatenate([getattr(part, name) for part in parts])

    return Judged(
        source=column("source"),
        output=column("output"),
        median=column("median"),
        reference=column("reference"),
        q90=column("q90"),
        constant=column("constant"),
    )
