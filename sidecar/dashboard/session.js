// What both pages share: the admin token of this browser's session, asking the API with it, and showing what comes.
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

// Shows the page now, again with each token that is entered, and every so many ms if they are given.
function begin(show, everyMs) {
  async function attempt() {
    try {
      await show();
    } catch (error) {
      find("summary").textContent = error.message;
    }
  }
  find("entry").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem(KEY, find("token").value);
    attempt();
  });
  attempt();
  if (everyMs) setInterval(attempt, everyMs);
}
