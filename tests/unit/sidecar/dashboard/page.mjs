// Runs the page's scripts on a small document of their own, with the answers of standard input (path -> JSON), and
// prints what it shows: id -> text, classes and whether it is hidden.
import { readFileSync } from "node:fs";
import vm from "node:vm";

class Node {
  constructor() {
    this.children = [];
    this.textContent = "";
    this.className = "";
    this.hidden = true;
    this.value = "";
  }
  append(...nodes) { this.children.push(...nodes); }
  replaceChildren(...nodes) { this.children = nodes; }
  insertRow() { return this.insert(); }
  insertCell() { return this.insert(); }
  insert() { const made = new Node(); this.children.push(made); return made; }
  addEventListener() {}
  shown() {
    return { text: this.textContent, style: this.className, hidden: this.hidden, children: this.children.map((n) => n.shown()) };
  }
}

const folder = process.argv[2];
const page = readFileSync(`${folder}/index.html`, "utf8");
const nodes = Object.fromEntries([...page.matchAll(/ id="([^"]+)"/g)].map(([, id]) => [id, new Node()]));
const answers = JSON.parse(readFileSync(0, "utf8"));
vm.runInNewContext(["session.js", "fleet.js"].map((name) => readFileSync(`${folder}/${name}`, "utf8")).join("\n"), {
  document: { getElementById: (id) => nodes[id], createElement: () => new Node() },
  sessionStorage: { getItem: () => null, setItem() {}, removeItem() {} },
  fetch: async (path) => ({ ok: true, status: 200, json: async () => answers[path] }),
  setInterval() {},
  Date,
});
setImmediate(() => {
  setTimeout(() => console.log(JSON.stringify(Object.fromEntries(Object.entries(nodes).map(([id, n]) => [id, n.shown()])))), 0);
});
