/**
 * Streaming clients of `winnow route` in front of processes of `winnow serve`, one of which is killed. As a program it prints its
 * report: `node apps/cli/test/route-load.ts 200`.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { fileURLToPath } from 'node:url';

const program = fileURLToPath(new URL('../dist/main.js', import.meta.url));

/** How a stream ended: with its last event, with an error event, or without either. */
type End = 'done' | 'error' | 'cut';

export interface LoadReport {
  readonly numClients: number;
  readonly maxSessions: number;
  /** Ends of the streams, by round. A replica is killed in the second one, and another one started in its place. */
  readonly rounds: readonly Readonly<Record<End, number>>[];
  readonly roundMs: readonly number[];
  /** Error events in the last lines of the failed streams. */
  readonly errors: readonly string[];
  /** Streams that the router reports as broken. */
  readonly numBroken: number;
  /** Resident memory in bytes after each round: the router, then the replicas that lived. */
  readonly residentBytes: readonly (readonly number[])[];
  /** With which the router ended after SIGTERM. */
  readonly routerCode: number | null;
}

export class ServerProcess {
  readonly child: ChildProcess;
  readonly url: string;

  private constructor(child: ChildProcess, url: string) {
    this.child = child;
    this.url = url;
  }

  static async start(argv: readonly string[]): Promise<ServerProcess> {
    const child = spawn(process.execPath, [program, ...argv], { stdio: ['ignore', 'pipe', 'inherit'] });
    let text = '';
    child.stdout?.setEncoding('utf8').on('data', (part: string) => {
      text += part;
    });
    while (!text.includes('\n'))
      await Promise.race([once(child.stdout as NodeJS.ReadableStream, 'data'), failed(child)]);
    return new ServerProcess(child, text.replace('listening on ', '').trim());
  }

  get residentBytes(): number {
    const status = readFileSync(`/proc/${this.child.pid}/status`, 'utf8');
    return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) * 1024;
  }

  async kill(signal: NodeJS.Signals = 'SIGKILL'): Promise<number | null> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return this.child.exitCode;
    this.child.kill(signal);
    const [code] = (await once(this.child, 'exit')) as [number | null];
    return code;
  }
}

async function failed(child: ChildProcess): Promise<never> {
  const [code] = (await once(child, 'exit')) as [number];
  throw new Error(`the process ended with ${code}`);
}

interface StreamResult {
  readonly end: End;
  readonly last: string;
}

const agent = new Agent({ keepAlive: true });

/** @param onEvent called for each event */
function readStream(url: string, body: object, onEvent: () => void): Promise<StreamResult> {
  return new Promise((resolve) => {
    const headers = { 'content-type': 'application/json' };
    const asked = request(`${url}/v1/completions`, { method: 'POST', headers, agent }, (response) => {
      let text = '';
      const finish = (): void => {
        const last = text.trimEnd().split('\n').at(-1) ?? '';
        const isError = response.statusCode === 200 && /^data: \{"error":\{.*\}\}$/.test(last) && text.endsWith('\n\n');
        resolve({ end: isError ? 'error' : last === 'data: [DONE]' ? 'done' : 'cut', last });
      };
      response.setEncoding('utf8').on('data', (part: string) => {
        text += part;
        onEvent();
      });
      response.once('end', finish).once('error', finish);
    });
    asked.once('error', (error) => resolve({ end: 'cut', last: error.message }));
    asked.end(JSON.stringify(body));
  });
}

export interface LoadOptions {
  readonly numReplicas: number;
  readonly numClients: number;
  readonly numRounds: number;
  readonly maxTokens: number;
  readonly maxSessions: number;
}

const prefix = 'Once upon a time there was a little girl who lived near the sea with her mother and an old dog. ';

/** Starts a replica on a free port, or in the place of another one. */
function startReplica({ maxSessions, numClients }: LoadOptions, port = '0'): Promise<ServerProcess> {
  const limits = ['--max-sessions', String(maxSessions), '--max-queued', String(numClients), '--queue-timeout', '600'];
  return ServerProcess.start(['serve', '--port', port, '-t', '1', '-q', '--no-page', ...limits]);
}

/** Runs one round of clients; calls `onHalf` when half of them have read an event. */
async function runRound(
  url: string,
  { numClients, maxTokens }: LoadOptions,
  onHalf: () => void,
): Promise<StreamResult[]> {
  let numStarted = 0;
  return Promise.all(
    Array.from({ length: numClients }, (_, index) => {
      const body = {
        prompt: `${prefix.repeat(1 + (index % 4))}${index}`,
        max_tokens: maxTokens,
        stream: true,
        seed: index,
      };
      let hasBegun = false;
      return readStream(url, body, () => {
        if (hasBegun) return;
        hasBegun = true;
        numStarted++;
        if (numStarted === Math.ceil(numClients / 2)) onHalf();
      });
    }),
  );
}

async function brokenStreams(url: string): Promise<number> {
  const lines = (await (await fetch(`${url}/metrics`)).text()).split('\n');
  const broken = lines.filter((line) => line.startsWith('winnow_router_streams_broken_total{'));
  return broken.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' ') + 1)), 0);
}

export async function runLoad(options: LoadOptions): Promise<LoadReport> {
  const { numReplicas, numClients, maxSessions, numRounds } = options;
  const replicas = await Promise.all(Array.from({ length: numReplicas }, () => startReplica(options)));
  const upstreams = replicas.flatMap(({ url }) => ['--upstream', url]);
  const router = await ServerProcess.start(['route', '--port', '0', '-q', '--check-every', '0.5', ...upstreams]);
  const started = [...replicas, router];
  try {
    const [doomed, ...survivors] = replicas as [ServerProcess, ...ServerProcess[]];
    const rounds: Record<End, number>[] = [];
    const [errors, roundMs, residentBytes]: [string[], number[], number[][]] = [[], [], []];
    for (let round = 0; round < numRounds; round++) {
      const begin = performance.now();
      const isKilling = round === 1;
      const results = await runRound(router.url, options, () => {
        if (isKilling) void doomed.kill();
      });
      roundMs.push(Math.round(performance.now() - begin));
      const ends: Record<End, number> = { done: 0, error: 0, cut: 0 };
      for (const { end, last } of results) {
        ends[end]++;
        if (end !== 'done') errors.push(last);
      }
      rounds.push(ends);
      residentBytes.push([router, ...survivors].map((each) => each.residentBytes));
      if (isKilling && round + 1 < numRounds) started.push(await startReplica(options, new URL(doomed.url).port));
    }
    const numBroken = await brokenStreams(router.url);
    const routerCode = await router.kill('SIGTERM');
    return { numClients, maxSessions, rounds, roundMs, errors, numBroken, residentBytes, routerCode };
  } finally {
    await Promise.all(started.map((each) => each.kill()));
    agent.destroy();
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const numClients = Number(process.argv[2] ?? 200);
  const report = await runLoad({ numReplicas: 3, numClients, numRounds: 6, maxTokens: 32, maxSessions: 8 });
  process.stdout.write(`${JSON.stringify(report, null, 2)}\n`);
}
