import { main, question, tool, weather } from './run.mjs';

// The arguments are the packages: @ai-sdk/openai and the ai that goes with it,
// or the aliases of other versions of them.
const { createOpenAI } = await import(process.argv[2]);
const { jsonSchema, streamText, tool: defineTool } = await import(process.argv[3]);

await main({
  async chat(run, got) {
    const openai = createOpenAI({ apiKey: 'none', baseURL: `${run.url}/v1` });
    const result = streamText({
      model: openai.chat('sim-1'),
      prompt: question,
      maxRetries: run.retries ?? 0,
      onError: () => {}, // the error comes as a part too
      ...(run.tools && {
        tools: { [tool.name]: defineTool({ description: tool.description, inputSchema: jsonSchema(weather) }) },
      }),
      ...(run.maxTokens && { maxOutputTokens: run.maxTokens }),
    });
    for await (const part of result.fullStream) {
      switch (part.type) {
        case 'text-delta':
          got.text += part.text;
          break;
        case 'tool-call':
          got.tools.push({ id: part.toolCallId, name: part.toolName, arguments: arguments_(part.input) });
          break;
        case 'error':
          throw reason(part.error);
        case 'finish':
          got.finish = part.finishReason;
          got.usage = { input: part.totalUsage.inputTokens, output: part.totalUsage.outputTokens };
          got.ended = part.finishReason !== 'error';
      }
    }
  },
});

// arguments_ returns arguments as text, which those of no known tool are.
function arguments_(input) {
  return typeof input === 'string' ? input : JSON.stringify(input);
}

// reason returns what an error part holds as an error: the object of an error
// frame is not one.
function reason(error) {
  const last = error.lastError ?? error; // a RetryError has the one of each attempt
  return last instanceof Error ? last : Object.assign(new Error(last.message), last);
}
