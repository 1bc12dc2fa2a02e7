// Asks twice over one client, plain and streamed, with the header that asks for early hints; prints what it got as JSON.
import OpenAI from "openai";

const client = new OpenAI({
  baseURL: process.argv[2] + "/v1",
  apiKey: "none",
  maxRetries: 0,
  defaultHeaders: { "X-Accept-Early-Hints": "1" },
});
const messages = [{ role: "user", content: "hi" }];
const plain = await client.chat.completions.create({ model: "llama", messages, user: "plain" });
let streamed = "";
for await (const chunk of await client.chat.completions.create({ model: "llama", messages, stream: true })) {
  streamed += chunk.choices[0]?.delta?.content ?? "";
}
console.log(JSON.stringify({ plain: plain.choices[0].message.content, streamed }));
