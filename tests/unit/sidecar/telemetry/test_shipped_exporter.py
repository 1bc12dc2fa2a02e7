"""What is shipped for the DCGM exporter is what is read."""

from __future__ import annotations

import yaml

from sidecar.telemetry import dcgm

OLD_NAMES = {"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_POWER_MGMT_LIMIT"}
"""Read where an exporter has them, not asked for."""


def rows(root):
    lines = (root / "deploy/dcgm/collectors.csv").read_text().splitlines()
    return [[cell.strip() for cell in line.split(",")] for line in lines if line and not line.startswith("#")]


def test_every_row_has_the_three_cells_that_the_exporter_wants(root):
    for cells in rows(root):
        assert len(cells) == 3, cells
        assert cells[1] in {"gauge", "counter"}


def test_exactly_the_fields_that_are_read_are_asked_for(root):
    asked = {cells[0] for cells in rows(root)}
    assert asked == {field for field, _, _ in dcgm.FIELDS} - OLD_NAMES | {"DCGM_EXP_XID_ERRORS_COUNT"}


def test_the_shipped_interval_is_that_of_the_telemetry(root):
    compose = yaml.safe_load((root / "deploy/dcgm/compose.yaml").read_text())
    assert compose["services"]["dcgm-exporter"]["command"][-2:] == ["--collect-interval", "500"]
    daemon = yaml.safe_load((root / "deploy/dcgm/kubernetes.yaml").read_text())
    assert daemon["spec"]["template"]["spec"]["containers"][0]["args"][-2:] == ["--collect-interval", "500"]


def test_the_account_may_do_what_the_actuator_does_and_no_more(root):
    documents = list(yaml.safe_load_all((root / "deploy/kubernetes/rbac.yaml").read_text()))
    rules = {
        (group, resource): set(rule["verbs"])
        for rule in documents[1]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert rules["", "pods"] == {"get", "list", "delete"}
    assert rules["apps", "deployments"] == rules["apps", "statefulsets/scale"] == {"get", "patch"}
    assert len(rules) == 5
