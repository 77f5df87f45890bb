// Reads a streamed reply with Node's own fetch, whose patience is scaled down.
// Usage: node fetch.mjs URL TIMEOUT_MS COMMENTS
// Writes "silent" once so many comments came before any text, then the text or the error's code.

await fetch("data:,"); // makes the dispatcher whose class is needed
const { constructor: Agent } = globalThis[Symbol.for("undici.globalDispatcher.1")];
const [url, timeout, comments] = process.argv.slice(2);
const dispatcher = new Agent({ headersTimeout: +timeout, bodyTimeout: +timeout });
const body = { messages: [{ role: "user", content: "hi" }], stream: true };
const headers = { "content-type": "application/json" };
let text = "";
try {
  const init = { method: "POST", headers, body: JSON.stringify(body), dispatcher };
  const response = await fetch(url, init);
  const decoder = new TextDecoder();
  let isTold = false;
  for await (const part of response.body) {
    text += decoder.decode(part, { stream: true });
    if (!isTold && text.split("\n").filter((line) => line.startsWith(":")).length >= +comments) {
      isTold = true;
      console.log("silent");
    }
  }
  const data = text.split("\n").filter((line) => line.startsWith("data: {"));
  const chunks = data.map((line) => JSON.parse(line.slice("data: ".length)));
  console.log(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join(""));
} catch (error) {
  console.log(error.cause?.code ?? String(error));
}
