// Shows /openapi.json as a page. Text is only ever set as text, and nothing is loaded from elsewhere.
"use strict";

function add(parent, name, text) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  parent.append(made);
  return made;
}

// The type of a schema in a few words.
function kind(schema) {
  if (!schema) return "anything";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(kind).join(" or ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(", ");
  if (schema.type === "array") return `list of ${kind(schema.items)}`;
  if (schema.type === "object" && typeof schema.additionalProperties === "object") {
    return `map of ${kind(schema.additionalProperties)}`;
  }
  return schema.type || "anything";
}

function showMembers(parent, members) {
  const body = add(add(parent, "table"), "tbody");
  for (const [name, type, text] of members) {
    const row = body.insertRow();
    add(row.insertCell(), "code", name);
    row.insertCell().textContent = type;
    row.insertCell().textContent = text || "";
  }
}

function showRoute(parent, method, path, route) {
  const section = add(parent, "section");
  add(add(section, "h2"), "code", `${method.toUpperCase()} ${path}`);
  add(section, "p", [route.summary, route.description].filter(Boolean).join(". "));
  const members = (route.parameters || []).map((given) => [
    given.name, `${kind(given.schema)}, in the ${given.in}`, given.description,
  ]);
  const body = route.requestBody?.content["application/json"]?.schema;
  if (body) members.push(["body", kind(body), body.description]);
  for (const [status, answer] of Object.entries(route.responses || {})) {
    members.push([status, kind(answer.content?.["application/json"]?.schema), answer.description]);
  }
  showMembers(section, members);
}

function showSchemas(parent, schemas) {
  for (const [name, schema] of Object.entries(schemas)) {
    if (!schema.properties) continue;
    const section = add(parent, "section");
    add(section, "h2", name);
    add(section, "p", schema.description);
    showMembers(section, Object.entries(schema.properties).map(([member, given]) => [
      member, kind(given), given.description,
    ]));
  }
}

begin(async () => {
  const page = await ask("openapi.json");
  find("summary").textContent = page.info.summary || "";
  find("routes").replaceChildren();
  for (const [path, methods] of Object.entries(page.paths)) {
    for (const [method, route] of Object.entries(methods)) showRoute(find("routes"), method, path, route);
  }
  showSchemas(find("routes"), page.components?.schemas || {});
});
