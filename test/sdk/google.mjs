import { GoogleGenAI } from '@google/genai';

import { main, question } from './run.mjs';

await main({
  async generate(run, got) {
    const client = new GoogleGenAI({ apiKey: 'none', httpOptions: { baseUrl: run.url } });
    const stream = await client.models.generateContentStream({ model: 'gemini-sim', contents: question });
    for await (const chunk of stream) {
      const candidate = chunk.candidates?.[0];
      for (const part of candidate?.content?.parts ?? []) {
        if (part.thought) got.reasoning += part.text ?? '';
        else got.text += part.text ?? '';
        if (part.functionCall) {
          got.tools.push({ name: part.functionCall.name, arguments: JSON.stringify(part.functionCall.args) });
        }
      }
      const usage = chunk.usageMetadata;
      if (usage) got.usage = { input: usage.promptTokenCount, output: (usage.candidatesTokenCount ?? 0) + (usage.thoughtsTokenCount ?? 0) };
      got.finish = candidate?.finishReason ?? got.finish;
    }
    got.ended = got.finish !== undefined;
  },
});
