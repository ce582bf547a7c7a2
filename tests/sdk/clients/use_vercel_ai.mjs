// Vercel's AI SDK over its OpenAI-compatible provider: text, stream, tools in several steps.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, isStepCount, streamText, tool } from "ai";
import { z } from "zod";
import assert from "node:assert/strict";

const provider = (url) => createOpenAICompatible({ name: "weir", baseURL: url + "/v1", apiKey: process.env.WEIR_KEY, includeUsage: true });
const smol = provider(process.env.WEIR_URL).chatModel("smol");
const plain = provider(process.env.WEIR_URL).completionModel("smol");
const set = { temperature: 0.5, seed: 7, maxOutputTokens: 16, maxRetries: 0 };
let failed = 0;

async function test(name, fn) {
  try {
    const why = await fn();
    console.log(why ? `skip ${name}: ${why}` : `ok ${name}`);
  } catch (e) {
    failed++;
    console.log(`not ok ${name}: ${String(e.stack || e).replace(/\s+/g, " ").slice(0, 800)}`);
  }
}

await test("whole and stream", async () => {
  const whole = await generateText({ model: smol, prompt: "Name a river.", ...set });
  assert.ok(whole.text && whole.usage.outputTokens > 0);
  const s = streamText({ model: smol, prompt: "Name a river.", ...set });
  let text = "";
  for await (const t of s.textStream) text += t;
  assert.equal(text, whole.text);
  assert.equal((await s.usage).outputTokens, whole.usage.outputTokens);
});

await test("completion", async () => {
  assert.ok((await generateText({ model: plain, prompt: "The river", ...set })).text);
});

await test("an error has its message", async () => {
  await assert.rejects(generateText({ model: smol, prompt: "x", ...set, temperature: 9 }), /temperature/);
});

await test("abort", async () => {
  const stop = new AbortController();
  const s = streamText({ model: smol, prompt: "Count to a thousand.", ...set, maxOutputTokens: 2000, abortSignal: stop.signal, onError() {} });
  let n = 0;
  try {
    for await (const _ of s.textStream) if (++n === 3) stop.abort();
  } catch {}
  assert.ok(n >= 3 && n < 1000);
});

await test("tools", async () => {
  const url = process.env.WEIR_TOOLS_URL;
  if (!url) return process.env.WEIR_TOOLS_WHY;
  const seen = [];
  const tools = {
    weather: tool({
      description: "Tells the weather of a city right now.",
      inputSchema: z.object({ city: z.string() }),
      execute: async ({ city }) => (seen.push(city), `${city}: hail, 3 degrees`),
    }),
  };
  const ask = { model: provider(url).chatModel("qwen"), tools, stopWhen: isStepCount(2), temperature: 0,
    prepareStep: ({ stepNumber }) => (stepNumber ? { activeTools: [] } : {}), // a small model would call again
    maxOutputTokens: 128, maxRetries: 0,
    prompt: "Use the tool: what is the weather in Oslo?" };
  const whole = await generateText(ask);
  assert.deepEqual(seen, ["Oslo"]);
  assert.equal(whole.steps.length, 2);
  assert.ok(whole.text);
  const s = streamText(ask);
  let text = "";
  for await (const t of s.textStream) text += t;
  assert.equal(text, whole.text);
  assert.deepEqual(seen, ["Oslo", "Oslo"]);
});

process.exit(failed ? 1 : 0);
