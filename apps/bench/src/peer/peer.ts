/** A peer as used by the suites. */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { PeerAnswer, PeerRequest, PeerSettings } from './protocol.js';

/** A program whose speed is compared. Tokens are given by their number only where a program draws its own. */
export interface SpeedPeer {
  readonly name: string;
  /** CPU time of its process so far. */
  readonly cpuMs: number;
  /** Sets the cache of a slot to these tokens. */
  setContext(slot: number, tokens: readonly number[]): Promise<void>;
  /** Computes the tokens with an empty cache, and the next one. */
  prefill(tokens: readonly number[]): Promise<{ timeMs: number }>;
  /** Greedy tokens after `token`, which follows the context of the slot. */
  decode(slot: number, token: number, count: number): Promise<{ timeMs: number }>;
  dispose(): Promise<void>;
}

/** A program whose results are compared, too. */
export interface Peer extends SpeedPeer {
  /** From the start of loading to a model that accepts tokens. */
  readonly loadMs: number;
  prefill(tokens: readonly number[]): Promise<{ timeMs: number; tokens: readonly number[] }>;
  decode(slot: number, token: number, count: number): Promise<{ timeMs: number; tokens: readonly number[] }>;
  /** Log-probabilities of the token after these, by token id. */
  logprobs(tokens: readonly number[]): Promise<Float32Array>;
}

/** Starts a process with the installed package and loads the model there. */
export async function startPeer(modulePath: string, settings: PeerSettings): Promise<Peer> {
  const file = import.meta.url.endsWith('.ts') ? './child.ts' : './peer-child.js';
  const child = fork(fileURLToPath(new URL(file, import.meta.url)), {
    serialization: 'advanced',
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    execArgv: [],
  });
  let errors = '';
  let cpuMs = 0;
  child.stderr?.on('data', (chunk: Buffer) => (errors = (errors + chunk.toString()).slice(-2000)));
  const ended = new Promise<never>((_, reject) => {
    child.on('exit', (code) => reject(new Error(`the peer's process ended with ${code}\n${errors}`)));
    child.on('error', reject);
  });
  ended.catch(() => undefined); // a normal exit is not a failure

  async function ask(request: PeerRequest) {
    const answered = once(child, 'message') as Promise<[PeerAnswer]>;
    child.send(request);
    const [answer] = await Promise.race([answered, ended]);
    if ('error' in answer) throw new Error(`node-llama-cpp: ${answer.error}`);
    cpuMs = answer.cpuMs;
    return answer;
  }

  async function dispose(): Promise<void> {
    if (child.exitCode !== null) return;
    const exited = once(child, 'exit');
    child.disconnect();
    await exited;
  }

  let loadMs: number;
  try {
    ({ timeMs: loadMs } = await ask({ kind: 'load', modulePath, settings }));
  } catch (error) {
    await dispose();
    throw error;
  }
  return {
    name: 'node-llama-cpp',
    loadMs,
    get cpuMs() {
      return cpuMs;
    },
    async setContext(slot, tokens) {
      await ask({ kind: 'context', slot, tokens });
    },
    prefill: (tokens) => ask({ kind: 'prefill', tokens }),
    decode: (slot, token, count) => ask({ kind: 'decode', slot, token, count }),
    async logprobs(tokens) {
      const { logprobs } = await ask({ kind: 'logprobs', tokens });
      return logprobs as Float32Array;
    },
    dispose,
  };
}
