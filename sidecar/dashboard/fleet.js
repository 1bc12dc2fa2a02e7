// Shows /api/fleet and the last changes of state once a second, the predictor every ten. Text is only ever set as text.
"use strict";

const PREDICTOR_EVERY = 10;
let shows = 0;

function cell(row, text, style) {
  const made = row.insertCell();
  made.textContent = text;
  if (style) made.className = style;
}

const percent = (share) => (share === null ? "not measured" : `${Math.round(100 * share)} %`);
const count = (number) => (number === null ? "not measured" : String(number));
const score = (number) => (number === null ? "not known" : number.toFixed(1));
const thousands = (tokens) => (tokens === null ? "not known" : `${Math.round(tokens / 1000)}k`);

// As `make status` tells a time.
function duration(ms) {
  const seconds = Math.max(ms, 0) / 1000;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${(seconds / 3600).toFixed(1)} h` : `${(seconds / 86400).toFixed(1)} d`;
}

// Fills a list with [text, style]; its section is hidden while there is nothing to tell.
function list(id, entries) {
  find(id).replaceChildren(
    ...entries.map(([text, style]) => {
      const item = document.createElement("li");
      item.textContent = text;
      if (style) item.className = style;
      return item;
    }),
  );
  find(`${id}-shown`).hidden = entries.length === 0;
}

function headline(fleet) {
  const shadow = fleet.shadow ? `, shadow ${fleet.shadow}` : "";
  const redis = fleet.redis ? `; Redis does not answer: ${fleet.redis}` : "";
  const atRest = fleet.backends.filter((backend) => backend.shown === "standby").length;
  return (
    `policy ${fleet.policy}${shadow}; ${fleet.ready} of ${fleet.backends.length} ready` +
    `${atRest ? `, ${atRest} stopped on standby` : ""}; ` +
    `${fleet.gateways} gateways; led by ${fleet.leader || "nobody"}${redis}`
  );
}

function why(backend) {
  const ejected = Object.entries(backend.ejected_by).map(([gateway, text]) => `ejected by ${gateway}: ${text}`);
  const tried = Object.entries(backend.tried_by).map(
    ([gateway, text]) => `tried by ${gateway} with single requests after: ${text}`,
  );
  return [backend.reason, ...ejected, ...tried].join("; ");
}

function showFleet(fleet) {
  find("summary").textContent = headline(fleet);
  find("changes").textContent = fleet.changes.length ? `changed by the admin API: ${fleet.changes.join(", ")}` : "";
  list(
    "alerts",
    fleet.alerts.map((alert) => [
      `${alert.kind} of ${alert.subject} for ${duration(Date.now() - alert.since_ms)}` +
        `${alert.page ? " (somebody is wanted)" : ""}: ${alert.text}`,
      alert.page ? "page" : "",
    ]),
  );
  const unusual = Object.entries(fleet.models).filter(([, model]) => model.unusual);
  list("models", unusual.map(([name, model]) => [`${name}: ${model.unusual}`, ""]));
  const body = find("fleet");
  body.replaceChildren();
  for (const backend of fleet.backends) {
    const row = body.insertRow();
    const ejected = backend.state !== "down" && Object.keys(backend.ejected_by).length > 0;
    const tried = backend.state !== "down" && !ejected && Object.keys(backend.tried_by).length > 0;
    cell(row, backend.id);
    cell(row, [backend.gpu, backend.precision].filter(Boolean).join(" ") || "not told");
    cell(row, backend.engine || "unknown");
    cell(row, backend.models.join(", "));
    cell(row, backend.promoted ? "standby, in service" : backend.role);
    const how = ejected ? ", ejected" : tried ? ", on trial" : "";
    cell(row, backend.shown + how, ejected ? "down" : tried ? "starting" : backend.shown);
    cell(row, count(backend.in_flight), "number");
    cell(row, count(backend.load), "number");
    cell(row, count(backend.foreign), "number");
    cell(row, percent(backend.memory), "number");
    cell(row, thousands(backend.capacity), "number");
    cell(row, score(backend.low), "number");
    cell(row, score(backend.high), "number");
    cell(row, why(backend));
  }
}

function showPredictor(learning) {
  const serves = learning.version ? `model ${learning.version}` : "running figures (no model yet)";
  const found = learning.recorded + learning.waiting;
  find("predictor").textContent = learning.enabled
    ? `predictor: ${serves}; ${found} completions recorded` +
      `${found < learning.wanted ? ` of ${learning.wanted} to train from` : ""}`
    : "predictor: off; running figures serve";
}

function showEvents(events) {
  const items = events.map((event) => {
    const item = document.createElement("li");
    const time = new Date(event.time_ms).toLocaleTimeString();
    item.textContent = `${time} ${event.backend}: ${event.before} to ${event.after}: ${event.reason}`;
    return item;
  });
  find("events").replaceChildren(...items);
}

begin(async () => {
  showFleet(await ask("api/fleet"));
  showEvents(await ask("api/decisions/events?limit=20"));
  if (shows++ % PREDICTOR_EVERY === 0) showPredictor(await ask("api/predictor"));
}, 1000);
