// What the programs of this folder have in common. Each gets its runs as a
// JSON array on standard input, does them side by side with one SDK, and
// prints one line of JSON for each: what the SDK made of the response.
import { text } from 'node:stream/consumers';

// main takes the ways in which a program can ask, by name. Each gets a run and
// what it got so far, which it fills in; what it throws is the run's error.
export async function main(ways) {
  const runs = JSON.parse(await text(process.stdin));
  await Promise.all(runs.map(async run => {
    const got = { run: run.name, text: '', reasoning: '', refusal: '', tools: [], ids: [] };
    try {
      await ways[run.way](run, got);
    } catch (error) {
      got.error = describe(error);
    }
    process.stdout.write(JSON.stringify(got) + '\n');
  }));
}

// describe says of an error what an application can act on.
export function describe(error) {
  return {
    class: error.constructor.name,
    // Some SDKs leave it to the application to read the body of a refusal.
    message: [error.message, error.body].filter(part => typeof part === 'string').join(' '),
    status: error.status ?? error.statusCode ?? error.status_code,
    type: error.type ?? undefined,
    code: typeof error.code === 'string' ? error.code : undefined,
  };
}

export const question = 'What is the weather in Zürich?';

// weather is the schema of the arguments of the one tool that is offered.
export const weather = {
  type: 'object',
  properties: { city: { type: 'string' }, note: { type: 'string' }, days: { type: 'number' } },
  required: ['city'],
};

export const tool = { name: 'get_weather', description: 'Tells the weather of a city' };

// backoff is how the SDKs that Speakeasy generates are told to try again.
export function backoff(run) {
  if (!run.retries) return { strategy: 'none' };
  return {
    strategy: 'backoff',
    backoff: { initialInterval: 100, maxInterval: 1000, exponent: 1.5, maxElapsedTime: 30_000 },
  };
}

// retryCodes are the statuses at which they try again: by themselves
// OpenRouter's leaves out 429 and Mistral's 529.
export const retryCodes = ['429', '5XX'];
