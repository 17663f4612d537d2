// Plays the modes of clients for node: reads {"mode", "url", "key"} a line, prints {"answer"} or {"error"}.
// Run by benchmarks/clients.py. Every client is as it comes from npm. A mode is a small agent: it lets the model call
// `weather`, twice at once, and returns the model's last text.

import readline from "node:readline";
import { z } from "zod";

const MODES = {};
const ASK = "How is the weather in Rome and Oslo?";
const SYSTEM = "You are helpful.";
const SCHEMA = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const CHAT_TOOL = { type: "function", function: { name: "weather", description: "Weather.", parameters: SCHEMA } };
const RESPONSE_TOOL = { type: "function", name: "weather", description: "Weather.", parameters: SCHEMA, strict: false };
const CLAUDE_TOOL = { name: "weather", description: "Weather.", input_schema: SCHEMA };
const ANSWER = z.object({ places: z.array(z.string()), weather: z.string() });

const mode = (name, play) => { MODES[name] = play; };
const weather = ({ city }) => `${city} sunny`;
const root = (url) => url.replace(/\/v1$/, "");
const ask = [{ role: "user", content: ASK }];
const check = (fine, what) => { if (!fine) throw new Error(what); };

// OpenAI

async function openai(url, key) {
  const { default: OpenAI } = await import("openai");
  return new OpenAI({ baseURL: url, apiKey: key });
}

async function chatLoop(create) {
  const messages = [{ role: "system", content: SYSTEM }, ...ask];
  for (;;) {
    const said = (await create({ model: "m", messages, tools: [CHAT_TOOL] })).choices[0].message;
    messages.push(said);
    if (!said.tool_calls?.length) return said.content;
    for (const call of said.tool_calls) {
      const content = weather(JSON.parse(call.function.arguments));
      messages.push({ role: "tool", tool_call_id: call.id, content });
    }
  }
}

mode("openai chat", async (url, key) => {
  const client = await openai(url, key);
  return chatLoop((body) => client.chat.completions.create(body));
});
mode("openai chat, streamed", async (url, key) => {
  const client = await openai(url, key);
  return chatLoop((body) => client.chat.completions.stream(body).finalChatCompletion());
});
mode("openai chat, parse", async (url, key) => {
  const client = await openai(url, key);
  const { zodResponseFormat } = await import("openai/helpers/zod");
  const body = { model: "m", messages: ask, response_format: zodResponseFormat(ANSWER, "answer") };
  return JSON.stringify((await client.chat.completions.parse(body)).choices[0].message.parsed);
});
const runnable = () => ({
  type: "function",
  function: { name: "weather", description: "Weather.", parameters: SCHEMA, parse: JSON.parse, function: weather },
});
mode("openai chat, runTools", async (url, key) => {
  const client = await openai(url, key);
  return client.chat.completions.runTools({ model: "m", messages: ask, tools: [runnable()] }).finalContent();
});
mode("openai chat, runTools, streamed", async (url, key) => {
  const client = await openai(url, key);
  const body = { model: "m", messages: ask, tools: [runnable()], stream: true };
  return client.chat.completions.runTools(body).finalContent();
});
mode("openai chat, stop, max_tokens, n", async (url, key) => {
  const client = await openai(url, key);
  const body = { model: "m", messages: ask, stop: ['ny"'], n: 2, max_tokens: 100 };
  const [first, second] = (await client.chat.completions.create(body)).choices;
  check(first.message.content === second.message.content, "two answers");
  return `${first.message.content}ny"}`;
});

async function responsesLoop(create, keeps) {
  let input = [...ask];
  let before = {};
  for (;;) {
    const done = await create({ model: "m", instructions: SYSTEM, input, tools: [RESPONSE_TOOL], ...before });
    const results = done.output
      .filter((item) => item.type === "function_call")
      .map((item) => ({
        type: "function_call_output", call_id: item.call_id, output: weather(JSON.parse(item.arguments)),
      }));
    if (!results.length) return done.output_text;
    if (keeps) before = { previous_response_id: done.id };
    input = keeps ? results : [...input, ...done.output, ...results];
  }
}
mode("openai responses", async (url, key) => {
  const client = await openai(url, key);
  return responsesLoop((body) => client.responses.create(body), false);
});
mode("openai responses, previous_response_id", async (url, key) => {
  const client = await openai(url, key);
  return responsesLoop((body) => client.responses.create(body), true);
});
mode("openai responses, streamed", async (url, key) => {
  const client = await openai(url, key);
  return responsesLoop((body) => client.responses.stream(body).finalResponse(), false);
});
mode("openai responses, parse", async (url, key) => {
  const client = await openai(url, key);
  const { zodTextFormat } = await import("openai/helpers/zod");
  const body = { model: "m", input: ASK, text: { format: zodTextFormat(ANSWER, "answer") } };
  return JSON.stringify((await client.responses.parse(body)).output_parsed);
});

async function agent(url, key, kind) {
  const agents = await import("@openai/agents");
  agents.setTracingDisabled(true);
  const tool = agents.tool({
    name: "weather", description: "Weather.", parameters: z.object({ city: z.string() }), execute: weather,
  });
  const model = new agents[kind](await openai(url, key), "m");
  return { run: agents.run, agent: new agents.Agent({ name: "a", instructions: SYSTEM, tools: [tool], model }) };
}
mode("openai-agents chat", async (url, key) => {
  const made = await agent(url, key, "OpenAIChatCompletionsModel");
  return (await made.run(made.agent, ASK)).finalOutput;
});
mode("openai-agents chat, streamed", async (url, key) => {
  const made = await agent(url, key, "OpenAIChatCompletionsModel");
  const stream = await made.run(made.agent, ASK, { stream: true });
  await stream.completed;
  return stream.finalOutput;
});
mode("openai-agents responses", async (url, key) => {
  const made = await agent(url, key, "OpenAIResponsesModel");
  return (await made.run(made.agent, ASK)).finalOutput;
});
mode("openai-agents responses, streamed", async (url, key) => {
  const made = await agent(url, key, "OpenAIResponsesModel");
  const stream = await made.run(made.agent, ASK, { stream: true });
  await stream.completed;
  return stream.finalOutput;
});

// Anthropic

async function claude(url, key) {
  const { default: Anthropic } = await import("@anthropic-ai/sdk");
  return new Anthropic({ baseURL: root(url), apiKey: key });
}

async function claudeLoop(create) {
  const messages = [...ask];
  for (;;) {
    const done = await create({ model: "m", max_tokens: 300, system: SYSTEM, tools: [CLAUDE_TOOL], messages });
    const calls = done.content.filter((block) => block.type === "tool_use");
    if (!calls.length) return done.content.map((block) => block.text ?? "").join("");
    const content = calls.map((c) => ({ type: "tool_result", tool_use_id: c.id, content: weather(c.input) }));
    messages.push({ role: "assistant", content: done.content }, { role: "user", content });
  }
}
mode("anthropic messages", async (url, key) => {
  const client = await claude(url, key);
  return claudeLoop((body) => client.messages.create(body));
});
mode("anthropic messages, streamed", async (url, key) => {
  const client = await claude(url, key);
  return claudeLoop((body) => client.messages.stream(body).finalMessage());
});
const claudeRunnable = async () => {
  const { betaZodTool } = await import("@anthropic-ai/sdk/helpers/beta/zod");
  const inputSchema = z.object({ city: z.string() });
  return betaZodTool({ name: "weather", description: "Weather.", inputSchema, run: weather });
};
mode("anthropic toolRunner", async (url, key) => {
  const client = await claude(url, key);
  const body = { model: "m", max_tokens: 300, messages: ask, tools: [await claudeRunnable()] };
  return (await client.beta.messages.toolRunner(body).runUntilDone()).content[0].text;
});
mode("anthropic toolRunner, streamed", async (url, key) => {
  const client = await claude(url, key);
  const body = { model: "m", max_tokens: 300, messages: ask, tools: [await claudeRunnable()], stream: true };
  return (await client.beta.messages.toolRunner(body).runUntilDone()).content[0].text;
});
mode("anthropic countTokens", async (url, key) => {
  const client = await claude(url, key);
  const body = { model: "m", system: SYSTEM, tools: [CLAUDE_TOOL], messages: ask };
  const counted = await client.messages.countTokens(body);
  check(counted.input_tokens > 0, "no tokens");
  return claudeLoop((given) => client.messages.create(given));
});

// Google

async function google(url, key) {
  const { GoogleGenAI } = await import("@google/genai");
  return new GoogleGenAI({ apiKey: key, httpOptions: { baseUrl: root(url) } });
}
const geminiConfig = {
  systemInstruction: SYSTEM,
  tools: [{ functionDeclarations: [{ name: "weather", description: "Weather.", parametersJsonSchema: SCHEMA }] }],
};
const geminiResults = (calls) =>
  calls.map((c) => ({ functionResponse: { id: c.id, name: c.name, response: { result: weather(c.args) } } }));
const parts = (chunks) => chunks.flatMap((c) => c.candidates?.[0]?.content?.parts ?? []);
const collect = async (stream) => { const out = []; for await (const one of stream) out.push(one); return out; };

async function geminiLoop(generate) {
  const contents = [{ role: "user", parts: [{ text: ASK }] }];
  for (;;) {
    const said = parts(await generate({ model: "m", contents, config: geminiConfig }));
    const calls = said.filter((part) => part.functionCall).map((part) => part.functionCall);
    if (!calls.length) return said.map((part) => part.text ?? "").join("");
    contents.push({ role: "model", parts: said }, { role: "user", parts: geminiResults(calls) });
  }
}
mode("google-genai generateContent", async (url, key) => {
  const client = await google(url, key);
  return geminiLoop(async (body) => [await client.models.generateContent(body)]);
});
mode("google-genai generateContentStream", async (url, key) => {
  const client = await google(url, key);
  return geminiLoop(async (body) => collect(await client.models.generateContentStream(body)));
});
mode("google-genai chats", async (url, key) => {
  const client = await google(url, key);
  const chat = client.chats.create({ model: "m", config: geminiConfig });
  const first = await chat.sendMessage({ message: ASK });
  return (await chat.sendMessage({ message: geminiResults(first.functionCalls) })).text;
});
mode("google-genai chats, streamed", async (url, key) => {
  const client = await google(url, key);
  const chat = client.chats.create({ model: "m", config: geminiConfig });
  const said = parts(await collect(await chat.sendMessageStream({ message: ASK })));
  const calls = said.filter((part) => part.functionCall).map((part) => part.functionCall);
  const last = await collect(await chat.sendMessageStream({ message: geminiResults(calls) }));
  return parts(last).map((part) => part.text ?? "").join("");
});
mode("google-genai countTokens", async (url, key) => {
  const client = await google(url, key);
  check((await client.models.countTokens({ model: "m", contents: ASK })).totalTokens > 0, "no tokens");
  return geminiLoop(async (body) => [await client.models.generateContent(body)]);
});

// Frameworks

async function aiModel(url, key, kind) {
  if (kind === "anthropic") return (await import("@ai-sdk/anthropic")).createAnthropic({ baseURL: url, apiKey: key })("m");
  if (kind === "google") {
    const made = (await import("@ai-sdk/google")).createGoogleGenerativeAI({ baseURL: `${root(url)}/v1beta`, apiKey: key });
    return made("m");
  }
  if (kind === "compatible") {
    const { createOpenAICompatible } = await import("@ai-sdk/openai-compatible");
    return createOpenAICompatible({ name: "seat", baseURL: url, apiKey: key })("m");
  }
  const made = (await import("@ai-sdk/openai")).createOpenAI({ baseURL: url, apiKey: key });
  return kind === "chat" ? made.chat("m") : made("m");
}

async function ai(url, key, kind, streamed) {
  const { generateText, streamText, tool, stepCountIs } = await import("ai");
  const tools = {
    weather: tool({ description: "Weather.", inputSchema: z.object({ city: z.string() }), execute: weather }),
  };
  const asked = { model: await aiModel(url, key, kind), system: SYSTEM, prompt: ASK, tools, stopWhen: stepCountIs(4) };
  if (!streamed) return (await generateText(asked)).text;
  const result = streamText({ ...asked, onError: ({ error }) => { throw error; } });
  await result.consumeStream();
  return result.text;
}
mode("ai-sdk openai responses", (url, key) => ai(url, key, "responses", false));
mode("ai-sdk openai responses, streamed", (url, key) => ai(url, key, "responses", true));
mode("ai-sdk openai chat", (url, key) => ai(url, key, "chat", false));
mode("ai-sdk openai chat, streamed", (url, key) => ai(url, key, "chat", true));
mode("ai-sdk openai-compatible", (url, key) => ai(url, key, "compatible", false));
mode("ai-sdk anthropic", (url, key) => ai(url, key, "anthropic", false));
mode("ai-sdk anthropic, streamed", (url, key) => ai(url, key, "anthropic", true));
mode("ai-sdk google", (url, key) => ai(url, key, "google", false));
mode("ai-sdk google, streamed", (url, key) => ai(url, key, "google", true));
mode("ai-sdk generateObject", async (url, key) => {
  const { generateObject } = await import("ai");
  const { object } = await generateObject({ model: await aiModel(url, key, "responses"), prompt: ASK, schema: ANSWER });
  return JSON.stringify(object);
});

async function chain(model) {
  const { tool } = await import("@langchain/core/tools");
  const { HumanMessage } = await import("@langchain/core/messages");
  const look = tool(weather, { name: "weather", description: "Weather.", schema: z.object({ city: z.string() }) });
  const bound = model.bindTools([look]);
  const messages = [new HumanMessage(ASK)];
  for (;;) {
    const said = await bound.invoke(messages);
    messages.push(said);
    if (!said.tool_calls?.length) return said.text;
    for (const call of said.tool_calls) messages.push(await look.invoke(call));
  }
}
mode("langchain openai", async (url, key) => {
  const { ChatOpenAI } = await import("@langchain/openai");
  return chain(new ChatOpenAI({ model: "m", apiKey: key, configuration: { baseURL: url } }));
});
mode("langchain anthropic", async (url, key) => {
  const { ChatAnthropic } = await import("@langchain/anthropic");
  return chain(new ChatAnthropic({ model: "claude-m", apiKey: key, anthropicApiUrl: root(url) }));
});
mode("langchain google", async (url, key) => {
  const { ChatGoogleGenerativeAI } = await import("@langchain/google-genai");
  return chain(new ChatGoogleGenerativeAI({ model: "m", apiKey: key, baseUrl: root(url) }));
});

for await (const line of readline.createInterface({ input: process.stdin })) {
  const { mode: name, url, key } = JSON.parse(line);
  let said;
  try {
    said = { answer: await MODES[name](url, key) };
  } catch (error) {
    said = { error: `${error?.name}: ${error?.message}` };
  }
  process.stdout.write(`\n@${JSON.stringify(said)}\n`);
}
process.exit(0);
