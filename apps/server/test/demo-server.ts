/** The demo model behind a server on a free port, and a client for it. */
import { demoModelUrl } from '@winnow/demo-model';
import { loadModel, type LoadOptions, type Model } from '@winnow/engine';
import OpenAI from 'openai';
import { createServer, type ServerOptions, type WinnowServer } from '../src/index.js';

export interface DemoServer {
  readonly url: string;
  readonly server: WinnowServer;
  readonly client: OpenAI;
  close(): Promise<void>;
}

export const demoId = 'winnow-tiny';

export function loadDemoModel(options: LoadOptions = {}): Promise<Model> {
  return loadModel(demoModelUrl, {
    threads: 1,
    maxSessions: 4,
    kvCache: { whenFull: 'wait', capacity: 4096 },
    ...options,
  });
}

/** A server whose models stay loaded when it closes. */
export async function startServer(options: ServerOptions, apiKey = 'none'): Promise<DemoServer> {
  const server = await createServer(options);
  const url = await server.listen({ port: 0 });
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0 });
  return { url, server, client, close: () => server.close({ graceMs: 1000 }) };
}

/** Polls until the condition holds, or until the timeout of the test. */
export async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await holds())) await new Promise((resolve) => setTimeout(resolve, 5));
}

export interface SlotInfo {
  readonly id: number;
  readonly model: string;
  readonly state: string;
  readonly request_id: string | null;
  readonly processed_tokens: number;
  readonly generated_tokens: number;
}

export async function slotsOf(url: string): Promise<SlotInfo[]> {
  return (await (await fetch(`${url}/slots`)).json()) as SlotInfo[];
}

export function postJson(url: string, body: unknown, headers: Record<string, string> = {}): Promise<Response> {
  return fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
}
