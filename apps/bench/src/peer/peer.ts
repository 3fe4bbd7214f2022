/** A peer as used by the suites. */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { PeerAnswer, PeerRequest, PeerSettings } from './protocol.js';

/** The script of the process, in the sources or next to the built program. */
const childFile = import.meta.url.endsWith('.ts') ? './child.ts' : './peer-child.js';

/** A program whose speed is compared. Some programs use only the number of tokens and draw their own. */
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
  const process = new PeerProcess();
  try {
    const { timeMs } = await process.ask({ kind: 'load', modulePath, settings });
    return new ProcessPeer(process, timeMs);
  } catch (error) {
    await process.dispose();
    throw error;
  }
}

/** The process of the peer: one request at a time. */
class PeerProcess {
  /** CPU time of the process so far. */
  cpuMs = 0;
  readonly #child = fork(fileURLToPath(new URL(childFile, import.meta.url)), {
    serialization: 'advanced',
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    execArgv: [],
  });
  readonly #ended: Promise<never>;
  #errors = '';

  constructor() {
    this.#child.stderr?.on('data', (chunk: Buffer) => (this.#errors = (this.#errors + chunk.toString()).slice(-2000)));
    this.#ended = new Promise<never>((_, reject) => {
      this.#child.on('exit', (code) => reject(new Error(`the peer's process ended with ${code}\n${this.#errors}`)));
      this.#child.on('error', reject);
    });
    this.#ended.catch(() => undefined); // a normal exit is not a failure
  }

  async ask(request: PeerRequest) {
    const answered = once(this.#child, 'message') as Promise<[PeerAnswer]>;
    this.#child.send(request);
    const [answer] = await Promise.race([answered, this.#ended]);
    if ('error' in answer) throw new Error(`node-llama-cpp: ${answer.error}`);
    this.cpuMs = answer.cpuMs;
    return answer;
  }

  async dispose(): Promise<void> {
    if (this.#child.exitCode !== null) return;
    const exited = once(this.#child, 'exit');
    this.#child.disconnect();
    await exited;
  }
}

/** The model in the process of the peer. */
class ProcessPeer implements Peer {
  readonly name = 'node-llama-cpp';
  readonly loadMs: number;
  readonly #process: PeerProcess;

  constructor(process: PeerProcess, loadMs: number) {
    this.#process = process;
    this.loadMs = loadMs;
  }

  get cpuMs(): number {
    return this.#process.cpuMs;
  }

  async setContext(slot: number, tokens: readonly number[]): Promise<void> {
    await this.#process.ask({ kind: 'context', slot, tokens });
  }

  prefill(tokens: readonly number[]): ReturnType<Peer['prefill']> {
    return this.#process.ask({ kind: 'prefill', tokens });
  }

  decode(slot: number, token: number, count: number): ReturnType<Peer['decode']> {
    return this.#process.ask({ kind: 'decode', slot, token, count });
  }

  async logprobs(tokens: readonly number[]): Promise<Float32Array> {
    const { logprobs } = await this.#process.ask({ kind: 'logprobs', tokens });
    return logprobs as Float32Array;
  }

  dispose(): Promise<void> {
    return this.#process.dispose();
  }
}
