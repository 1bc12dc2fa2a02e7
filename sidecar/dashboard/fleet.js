// Shows /api/fleet and the last changes of state, once a second. Text is only ever set as text.
"use strict";

function cell(row, text, style) {
  const made = row.insertCell();
  made.textContent = text;
  if (style) made.className = style;
}

const percent = (share) => (share === null ? "not measured" : `${Math.round(100 * share)} %`);
const count = (number) => (number === null ? "not measured" : String(number));

function showFleet(fleet) {
  const shadow = fleet.shadow ? `, shadow ${fleet.shadow}` : "";
  const redis = fleet.redis ? `; Redis does not answer: ${fleet.redis}` : "";
  find("summary").textContent =
    `policy ${fleet.policy}${shadow}; ${fleet.ready} of ${fleet.backends.length} ready; ` +
    `${fleet.gateways} gateways; led by ${fleet.leader || "nobody"}${redis}`;
  const body = find("fleet");
  body.replaceChildren();
  for (const backend of fleet.backends) {
    const row = body.insertRow();
    cell(row, backend.id);
    cell(row, backend.state, backend.state);
    cell(row, backend.engine || "unknown");
    cell(row, backend.models.join(", "));
    cell(row, percent(backend.memory), "number");
    cell(row, count(backend.load), "number");
    cell(row, count(backend.in_flight), "number");
    cell(row, count(backend.foreign), "number");
    cell(row, backend.reason);
  }
}

function showEvents(events) {
  const list = find("events");
  list.replaceChildren();
  for (const event of events) {
    const item = document.createElement("li");
    const time = new Date(event.time_ms).toLocaleTimeString();
    item.textContent = `${time} ${event.backend}: ${event.before} to ${event.after}: ${event.reason}`;
    list.append(item);
  }
}

begin(async () => {
  showFleet(await ask("api/fleet"));
  showEvents(await ask("api/decisions/events?limit=20"));
}, 1000);
