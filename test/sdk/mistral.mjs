import { Mistral } from '@mistralai/mistralai';

import { backoff, main, question, retryCodes, tool, weather } from './run.mjs';

await main({
  async chat(run, got) {
    const client = new Mistral({ apiKey: 'none', serverURL: run.url, retryConfig: backoff(run) });
    const stream = await client.chat.stream({
      model: 'sim-1',
      messages: [{ role: 'user', content: question }],
      ...(run.tools && { tools: [{ type: 'function', function: { ...tool, parameters: weather } }] }),
      ...(run.maxTokens && { maxTokens: run.maxTokens }),
      ...(run.choices && { n: run.choices }),
    }, { retryCodes });
    for await (const { data } of stream) {
      const choice = data.choices.find(c => c.index === 0);
      got.text += choice?.delta.content ?? '';
      // The SDK takes the pieces of a call's arguments only each with the call's
      // name, as Mistral sends them: whole.
      for (const call of choice?.delta.toolCalls ?? []) {
        got.tools.push({ id: call.id, name: call.function.name, arguments: call.function.arguments });
      }
      // Usage comes only if it was asked for, and this SDK has no word for that.
      if (data.usage) got.usage = { input: data.usage.promptTokens, output: data.usage.completionTokens };
      got.finish = choice?.finishReason ?? got.finish;
    }
    got.ended = true;
  },
});
