import { OpenRouter } from '@openrouter/sdk';

import { backoff, main, question, retryCodes, tool, weather } from './run.mjs';

await main({
  async chat(run, got) {
    const client = new OpenRouter({ apiKey: 'none', serverURL: `${run.url}/v1`, retryConfig: backoff(run) });
    const stream = await client.chat.send({
      chatRequest: {
        model: 'sim-1',
        stream: true,
        streamOptions: { includeUsage: true },
        messages: [{ role: 'user', content: question }],
        ...(run.tools && { tools: [{ type: 'function', function: { ...tool, parameters: weather } }] }),
        ...(run.maxTokens && { maxTokens: run.maxTokens }),
      },
    }, { retryCodes });
    for await (const chunk of stream) {
      const choice = chunk.choices.find(c => c.index === 0);
      got.text += choice?.delta.content ?? '';
      got.refusal += choice?.delta.refusal ?? '';
      for (const call of choice?.delta.toolCalls ?? []) {
        got.tools[call.index] ??= { id: call.id, name: call.function.name, arguments: '' };
        got.tools[call.index].arguments += call.function.arguments ?? '';
      }
      if (chunk.usage) got.usage = { input: chunk.usage.promptTokens, output: chunk.usage.completionTokens };
      got.finish = choice?.finishReason ?? got.finish;
    }
    got.ended = true;
  },
});
