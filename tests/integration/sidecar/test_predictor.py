"""What the sidecar keeps and shows of predictions."""

from __future__ import annotations

import base64
import json
import time

import numpy as np
import pytest

from model import records
from model.core import Core
from sidecar.learning import loops, retraining
from sidecar.learning.deviation import MINUTE_MS
from tests.integration.sidecar.conftest import until
from tokenweir.contract import names
from tokenweir.recorded import ENOUGH, FOLDER


@pytest.fixture(scope="module")
def core():
    return Core()


def record(core, number=0, **members):
    vector = np.full(len(core.names), 0.5, "<f4")
    values = {
        "id": f"r{number}",
        "gateway": "g1",
        "time_ms": int(time.time() * 1000),
        "model": "m",
        "backend": "a",
        "kind": "chat",
        "mean": 120,
        "output": 100 + number,
        "output_source": "usage",
        "finish": "stop",
        "outcome": "ok",
        "features": core.version,
        "vector": base64.b64encode(vector.tobytes()).decode(),
        "words": base64.b64encode(np.array([number, 7], "<u2").tobytes()).decode(),
    }
    return values | members


def send(store, batch):
    store.xadd(
        names.COMPLETIONS,
        {
            names.COMPLETIONS_BATCH: json.dumps(batch),
            names.COMPLETIONS_SOURCE: "g1:1:1",
            names.COMPLETIONS_FIRST: 0,
        },
    )


@pytest.fixture
def config(write_config, engines):
    return write_config("one", backends=[{"id": "a", "url": engines().url}], predictor={"sample": 0.5})


async def test_features_of_completions_are_kept_as_training_reads_them(config, start_sidecar, store, core):
    sidecar = await start_sidecar(config)
    send(store, [record(core, number) for number in range(5)])
    await until(lambda: sidecar.plane.completions.recording.rows == 5, what="five rows")
    await sidecar.plane.stop()
    found = records.load(sidecar.plane.state_dir / FOLDER, core)
    assert sorted(found.data.output.tolist()) == [100, 101, 102, 103, 104]
    assert found.data.words.count.tolist() == [2] * 5
    assert not found.dropped


async def test_features_that_cannot_be_read_are_counted_and_the_record_counts_all_the_same(
    config, start_sidecar, store, core
):
    sidecar = await start_sidecar(config)
    send(store, [record(core, 1, vector="!!"), record(core, 2)])
    completions = sidecar.plane.completions
    await until(lambda: completions.records == 2, what="two records")
    assert (completions.recording.rows, completions.recording.refused) == (1, 1)


async def test_the_deviation_of_the_last_minute_is_a_metric(config, start_sidecar, store, core):
    sidecar = await start_sidecar(config)
    minute = int(time.time() * 1000) // MINUTE_MS - 1
    send(store, [record(core, 0, time_ms=minute * MINUTE_MS + k) for k in range(10)])
    await until(lambda: sidecar.plane.completions.records == 10, what="ten records")
    page = (await sidecar.http.get("/metrics")).text
    lines = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    for model in ("m", ""):
        series = f'tokenweir_sidecar_prediction_deviation{{model="{model}"}}'
        # A minute may have ended since: then it is no longer the last one.
        assert float(lines.get(series, 0.2)) == pytest.approx(0.2)
    assert float(lines["tokenweir_sidecar_features_recorded_total"]) == 10


async def test_how_to_predict_reaches_the_gateways(config, start_sidecar, store):
    await start_sidecar(config)
    await until(lambda: store.get(names.SETTINGS), what="settings")
    settings = json.loads(store.get(names.SETTINGS))["predictor"]
    assert settings == {"enabled": True, "record": True, "sample": 0.5, "words": True, "small_model": False}


async def test_what_waits_is_written_when_a_training_asks_for_it(config, start_sidecar, store, core):
    sidecar = await start_sidecar(config)
    send(store, [record(core, number) for number in range(5)])
    await until(lambda: sidecar.plane.completions.recording.rows == 5, what="five rows")
    before = (await sidecar.http.get("/api/predictor")).json()
    assert (before["recorded"], before["waiting"], before["wanted"]) == (0, 5, ENOUGH)
    after = (await sidecar.http.post("/api/predictor/flush")).json()
    assert (after["recorded"], after["waiting"]) == (5, 0)
    assert len(records.load(sidecar.plane.state_dir / FOLDER, core).data) == 5


async def test_a_sidecar_that_cannot_train_says_how_to_mend_it(config, start_sidecar, store, monkeypatch):
    sidecar = await start_sidecar(config)
    view = (await sidecar.http.get("/api/predictor")).json()
    assert (view["missing"], view["mend"]) == ([], "")
    monkeypatch.setattr(retraining, "missing", lambda: ["sklearn"])
    view = (await sidecar.http.get("/api/predictor")).json()
    assert view["missing"] == ["sklearn"]
    assert "make train" in view["mend"]


async def test_the_model_in_service_is_told_and_is_in_the_snapshot(config, start_sidecar, store, monkeypatch):
    monkeypatch.setattr(loops, "TRAINING_MS", 50)
    sidecar = await start_sidecar(config)
    assert (await sidecar.http.get("/api/predictor")).json()["version"] is None
    store.set(names.PREDICTOR_CURRENT, json.dumps({"schema": 1, "version": "v7", "time_ms": 1}))

    def told():
        return json.loads(store.get(names.SNAPSHOT) or "{}").get("predictor_version") == "v7"

    await until(told, what="the version in the snapshot")
    assert (await sidecar.http.get("/api/predictor")).json()["version"] == "v7"
