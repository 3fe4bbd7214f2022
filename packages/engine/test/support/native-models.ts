/** Models on native kernels beside the same models on WebAssembly. */
import { readdirSync } from 'node:fs';
import { createWasmBackend, type WasmBackend } from '@winnow/backend-wasm';
import { demoModelUrl } from '@winnow/demo-model';
import type { Backend } from '@winnow/ops';
import { fastClock, testCoverage } from '@winnow/test-utils';
import { expect } from 'vitest';
import { loadModel, type LoadOptions, type Model } from '../../src/index.js';
import { maxDifference } from './golden-files.js';
import { inMemory } from './in-memory.js';
import type { Level } from './native.js';

const demo = inMemory(demoModelUrl);

/**
 * Of log-probabilities with exact activations: 6 layers of 7 sums, of up to 576 products whose roundings add up to the square
 * root of that number, relative to logits of 10. Either side may be off by as much.
 */
export const bound: number = 2 * 10 * 6 * 7 * Math.sqrt(576) * 2 ** -24;

/** For prompts. */
export const text =
  'The old man looked at the sea and said that he had never seen such a storm. The boy looked at the old man and said that the sea was ';

/** Ops with a native kernel: it has the name of its op. */
const nativeOps = new Set(
  readdirSync(new URL('../../../native/source/ops/', import.meta.url)).map((file) => file.slice(0, -4)),
);

/** A backend that counts the records of ops with native kernels that it runs. */
function counted(backend: WasmBackend): { readonly backend: WasmBackend; readonly ops: Map<string, number> } {
  const ops = new Map<string, number>();
  const prepare: Backend['prepare'] = async (program, options) => {
    const executable = await backend.prepare(program, options);
    const run: typeof executable.run = async (...call) => {
      for (const { op } of program.records) if (nativeOps.has(op)) ops.set(op, (ops.get(op) ?? 0) + 1);
      await executable.run(...call);
    };
    return Object.assign(Object.create(executable) as typeof executable, { run });
  };
  return { backend: Object.assign(Object.create(backend) as WasmBackend, { prepare }), ops };
}

interface BackendCase extends Pick<LoadOptions, 'activations'> {
  /** Ops that must have run. */
  readonly ops?: readonly string[] | undefined;
  /** Of native kernels. Default 2. */
  readonly numThreads?: number | undefined;
}

const backends = new Map<string, Promise<WasmBackend>>();

/** Made once for a file's tests: starting workers takes longer than a small model. */
function sharedBackend(native: Level | false, { activations, numThreads = 2 }: BackendCase): Promise<WasmBackend> {
  // WebAssembly, which gives the expectations, computes on the calling thread
  const threads = native === false ? { numThreads: 1, maxCallerMs: 1e4 } : { numThreads, minSharedWork: 0 };
  const options = { native, ...threads, activations };
  const key = JSON.stringify(options);
  const backend = backends.get(key) ?? createWasmBackend(options);
  backends.set(key, backend);
  return backend;
}

/** To be called after the tests of a file. */
export async function disposeBackends(): Promise<void> {
  for (const backend of backends.values()) await (await backend).dispose();
  backends.clear();
}

/** Calls `use` with a backend. Native kernels have to compute every record of their ops, among them the given ones. */
export async function withBackend<T>(
  native: Level | false,
  given: BackendCase,
  use: (backend: Backend) => Promise<T>,
): Promise<T> {
  const shared = await sharedBackend(native, given);
  const before = shared.numNativeRecords;
  const { backend, ops } = counted(shared);
  const result = await use(backend);
  const numRecords = [...ops.values()].reduce((sum, count) => sum + count, 0);
  expect([...ops.keys()]).toEqual(expect.arrayContaining([...(given.ops ?? [])]));
  expect(numRecords).toBeGreaterThan(0);
  expect(shared.numNativeRecords - before).toBe(native === false ? 0 : numRecords);
  return result;
}

export interface Case extends LoadOptions, BackendCase {
  readonly location?: Parameters<typeof loadModel>[0];
}

/** By the function itself: closures of one function may differ in what they enclose. */
const known = new WeakMap<object, Map<string, Promise<unknown>>>();
const tables = new Map<unknown, number>();

/** Options as a key: tables of a calibration, which are large, by their identity. */
function keyOf(options: Case): string {
  return JSON.stringify(options, (_, value: unknown) => {
    if (!ArrayBuffer.isView(value)) return value;
    tables.set(value, tables.get(value) ?? tables.size);
    return { table: tables.get(value) };
  });
}

/** What `use` returns for a model on WebAssembly, computed once, or on native kernels. */
export async function on<T>(native: Level | false, given: Case, use: (model: Model) => Promise<T>): Promise<T> {
  const { location = demo, ops, numThreads, ...options } = given;
  const compute = (): Promise<T> =>
    withBackend(native, { ...options, ops, numThreads }, async (backend) => {
      await using model = await loadModel(location, {
        context: 512,
        maxSessions: 2,
        now: fastClock(),
        ...options,
        backend,
      });
      return await use(model);
    });
  if (native !== false) return compute();
  const ofUse = known.get(use) ?? new Map<string, Promise<unknown>>();
  known.set(use, ofUse);
  const key = keyOf({ ...options, location });
  const first = ofUse.get(key) ?? compute();
  ofUse.set(key, first);
  return (await first) as T;
}

/** Longer than every window and budget of the policies. */
const numRepeats = testCoverage === 'full' ? 7 : 3;

/** Log-probabilities of the last tokens of a text, of both phases. */
export async function rowsOf(model: Model): Promise<Float32Array[]> {
  const tokens = model.encodePrompt(text.repeat(numRepeats));
  const positions = Array.from({ length: 12 }, (_, index) => tokens.length - 12 + index);
  const prefill = await model.logprobs(tokens, { positions });
  const decoded = await model.logprobs(tokens, { positions, phase: 'decode', decodeFrom: tokens.length - 16 });
  return [...prefill, ...decoded];
}

export function worstOf(found: readonly Float32Array[], expected: readonly Float32Array[]): number {
  return Math.max(...found.map((row, at) => maxDifference(row, expected[at] as Float32Array)));
}

/** Root mean square of the differences. */
export function rms(a: readonly Float32Array[], b: readonly Float32Array[]): number {
  let [sum, count] = [0, 0];
  for (const [row, values] of a.entries()) {
    for (const [i, value] of values.entries()) sum += (value - b[row]![i]!) ** 2;
    count += values.length;
  }
  return Math.sqrt(sum / count);
}
