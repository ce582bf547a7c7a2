// Anthropic's official JavaScript client against the server at WEIR_URL. Started by `run`.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({ baseURL: process.env.WEIR_URL, apiKey: process.env.WEIR_KEY, maxRetries: 0 });
const model = "tiny-llama-q";
const messages = [{ role: "user", content: "Hello" }];
const ask = (more) => client.messages.create({ model, messages, max_tokens: 8, seed: 7, ...more });
const text = (m) => m.content.filter((b) => b.type === "text").map((b) => b.text).join("");

const tests = {
  async whole() {
    const m = await ask({ system: "Be brief." });
    assert.ok(m.id.startsWith("msg_") && m.role === "assistant" && m.usage.output_tokens > 0);
  },
  async stream() {
    const want = await ask();
    const s = client.messages.stream({ model, messages, max_tokens: 8, seed: 7 });
    let seen = "";
    s.on("text", (t) => { seen += t; });
    const final = await s.finalMessage();
    assert.equal(seen, text(want));
    assert.equal(text(final), seen);
    assert.equal(final.stop_reason, want.stop_reason);
  },
  async count() {
    const n = await client.messages.countTokens({ model, messages });
    const u = (await ask()).usage;
    assert.equal(n.input_tokens, u.input_tokens + u.cache_read_input_tokens);
  },
  async errors() {
    await assert.rejects(ask({ model: "claude" }), (e) => e instanceof Anthropic.NotFoundError && /claude/.test(e.message));
    await assert.rejects(ask({ max_tokens: 0 }), (e) => e instanceof Anthropic.BadRequestError && e.error.error.type === "invalid_request_error");
    const stranger = new Anthropic({ baseURL: process.env.WEIR_URL, apiKey: "wrong-key-here", maxRetries: 0 });
    await assert.rejects(stranger.messages.create({ model, messages, max_tokens: 1 }), Anthropic.AuthenticationError);
  },
};

let failed = 0;
for (const [name, test] of Object.entries(tests)) {
  try {
    await test();
    console.log(`ok ${name}`);
  } catch (e) {
    failed++;
    console.log(`not ok ${name}: ${String(e.message).split(/\s+/).join(" ").slice(0, 500)}`);
  }
}
process.exit(failed ? 1 : 0);
