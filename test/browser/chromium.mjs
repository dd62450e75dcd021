// Starts the Chromium of the system. Each launch has a profile of its own.
import { after, before } from 'node:test';
import { chromium } from 'playwright-core';

export const base = process.env.LLMSTREAM_URL;
export const control = process.env.LLMSTREAM_STAGE;

let browser;

before(async () => {
  browser = await chromium.launch({
    executablePath: process.env.LLMSTREAM_CHROMIUM,
    args: [
      '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
      '--disable-background-networking', '--disable-component-update', '--disable-sync',
    ],
  });
});
after(() => browser?.close());

// device is a browser of its own, with its own storage. What its pages complain
// of fails the test that looks at it.
export async function device(options) {
  const context = await browser.newContext(options);
  const complaints = [];
  context.on('console', message => { if (message.type() === 'error') complaints.push(message.text()); });
  context.on('weberror', error => complaints.push(String(error.error())));
  return { context, complaints, close: () => context.close() };
}

// stage asks the stage for something.
export async function stage(path) {
  const response = await fetch(control + path, { method: 'POST' });
  return response.json();
}

// until waits for something that will be so.
export async function until(what, condition) {
  for (const end = Date.now() + 15_000; Date.now() < end; await new Promise(resolve => setTimeout(resolve, 25))) {
    if (await condition()) return;
  }
  throw new Error(`not within 15 s: ${what}`);
}
