// Shows /api/fleet and the last changes of state, once a second. Text is only ever set as text.
"use strict";

const KEY = "tokenweir-admin-token";
const find = (id) => document.getElementById(id);

async function ask(path) {
  const token = sessionStorage.getItem(KEY);
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { headers, cache: "no-store" });
  if (answer.status === 401) {
    sessionStorage.removeItem(KEY);
    find("entry").hidden = false;
    throw new Error("the admin token is wanted");
  }
  if (!answer.ok) throw new Error(`${path} answers ${answer.status}`);
  find("entry").hidden = true;
  return answer.json();
}

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

async function show() {
  try {
    showFleet(await ask("api/fleet"));
    showEvents(await ask("api/decisions/events?limit=20"));
  } catch (error) {
    find("summary").textContent = error.message;
  }
}

find("entry").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, find("token").value);
  show();
});
show();
setInterval(show, 1000);
