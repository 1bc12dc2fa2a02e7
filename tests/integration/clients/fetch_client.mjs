// The same by Node's own fetch.
const ask = (members) =>
  fetch(process.argv[2] + "/v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Accept-Early-Hints": "1" },
    body: JSON.stringify({ model: "llama", messages: [{ role: "user", content: "hi" }], ...members }),
  });

const plain = await (await ask({ user: "plain" })).json();
const text = await (await ask({ stream: true })).text();
const streamed = text
  .split("\n\n")
  .filter((event) => event.startsWith("data: {"))
  .map((event) => JSON.parse(event.slice(6)).choices[0]?.delta?.content ?? "")
  .join("");
console.log(JSON.stringify({ plain: plain.choices[0].message.content, streamed }));
