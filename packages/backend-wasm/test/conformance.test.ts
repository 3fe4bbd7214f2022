/**
 * The suite of `@winnow/conformance` over variants of the kernels, with guarded scratch: before every run it is filled with
 * NaN, and so are guard bands after the shared scratch and that of each thread, which no run may change. Kernels stay within
 * the scratch that the host plans for them, and read only what they wrote.
 */
import { readdirSync, readFileSync } from 'node:fs';
import {
  assignVariants,
  checkKernelCase,
  describeVariants,
  float32Arithmetic,
  kernelCases,
  selectCases,
  sizeKinds,
  type KernelCase,
  type SupportTable,
} from '@winnow/conformance';
import type { Backend } from '@winnow/ops';
import { sampled, testCoverage } from '@winnow/test-utils';
import { afterAll, describe, expect, test, vi } from 'vitest';
import { createWasmBackend, type CreateWasmBackendOptions } from '../src/index.js';
import { kernelOps } from '../src/kernels/kernel-ops.generated.js';
import { jobWords, minPanelTokens } from '../src/kernels/layout.generated.js';
import type { LoadedPart } from '../src/program/program-part.js';
import type { Scratch } from '../src/program/scratch-meter.js';
import { nativeHost, usableLevels } from './native-host.js';
import { createScattered } from './scattered.js';

const guardBytes = 4096;
const guardByte = 0xff;
const untouched = Buffer.alloc(guardBytes, guardByte);

/** Eight bytes at a time: of shared memory, single ones take eight times as long. */
function fillGuard(bytes: Uint8Array): void {
  const numWords = bytes.length >> 3;
  new BigInt64Array(bytes.buffer, bytes.byteOffset, numWords).fill(-1n);
  bytes.fill(guardByte, 8 * numWords);
}

/** The latest plan, and the loaded parts. */
const planned = vi.hoisted(() => ({ sharedBytes: 0, parts: [] as { loaded: unknown; sharedBytes: number }[] }));

vi.mock('../src/program/scratch-meter.js', async (importOriginal) => {
  const original = await importOriginal<typeof import('../src/program/scratch-meter.js')>();
  class GuardedMeter extends original.ScratchMeter {
    override measure(...args: Parameters<InstanceType<typeof original.ScratchMeter>['measure']>): Scratch {
      const { sharedBytes, localBytes, nativeRecords } = super.measure(...args);
      planned.sharedBytes = sharedBytes;
      return { sharedBytes: sharedBytes + guardBytes, localBytes: localBytes + guardBytes, nativeRecords };
    }
  }
  return { ...original, ScratchMeter: GuardedMeter };
});
vi.mock('../src/program/program-part.js', async (importOriginal) => {
  const original = await importOriginal<typeof import('../src/program/program-part.js')>();
  const loadPart: typeof original.loadPart = (...args) => {
    const loaded = original.loadPart(...args);
    planned.parts.push({ loaded, sharedBytes: planned.sharedBytes });
    return loaded;
  };
  return { ...original, loadPart };
});

/** The scratch of a loaded part, and the guard bands after its pieces. */
function scratchOf(
  { memory, address }: LoadedPart,
  sharedBytes: number,
  numThreads: number,
): { readonly all: readonly Uint8Array[]; readonly bands: readonly Uint8Array[] } {
  const [, , sharedAt = 0, localAt = 0, stride = 0] = memory.heap.words(address, jobWords);
  const all = [
    memory.heap.bytes(sharedAt, sharedBytes + guardBytes),
    ...Array.from({ length: numThreads }, (_, thread) => memory.heap.bytes(localAt + thread * stride, stride)),
  ];
  return { all, bands: all.map((bytes) => bytes.subarray(bytes.length - guardBytes)) };
}

/** A backend whose runs fill and check the scratch. */
function guarded<Guarded extends Backend>(backend: Guarded, numThreads: number): Guarded {
  return {
    ...backend,
    async prepare(program, options) {
      planned.parts.length = 0;
      const executable = await backend.prepare(program, options);
      const parts = [...planned.parts];
      const run: typeof executable.run = async (scalars, runOptions) => {
        const scratch = parts.map(({ loaded, sharedBytes }) =>
          scratchOf(loaded as LoadedPart, sharedBytes, numThreads),
        );
        for (const { all } of scratch) for (const bytes of all) fillGuard(bytes);
        await executable.run(scalars, runOptions);
        for (const [index, band] of scratch.flatMap(({ bands }) => bands).entries()) {
          if (untouched.equals(band)) continue;
          const at = band.findIndex((byte) => byte !== guardByte);
          throw new Error(`scratch ${index} was left: byte ${at} behind its end is ${band[at]}`);
        }
      };
      return Object.assign(Object.create(executable) as typeof executable, { run });
    },
  };
}

/** Small enough that hundreds of backends fit the address space. */
const maxMemoryBytes = 2 ** 26;

async function createGuarded(options: CreateWasmBackendOptions): Promise<Backend> {
  const backend = await createWasmBackend({ maxMemoryBytes, activations: 'f32', maxCallerMs: 0, ...options });
  return guarded(backend, backend.numThreads);
}

async function createGuardedScattered(): Promise<Backend> {
  const options = { relaxedSimd: false, numThreads: 2, minSharedWork: 0, activations: 'f32', maxCallerMs: 0 } as const;
  const { backend, inner } = await createScattered(3, options);
  return guarded(backend, inner.numThreads);
}

/** Variants with f32 activations, for which the bounds of the suite are derived. */
const variants: Readonly<Record<string, () => Promise<Backend>>> = {
  'simd, 1 thread, jobs by message': () => createGuarded({ relaxedSimd: false, numThreads: 1, usesMessages: true }),
  'simd, 2 threads': () => createGuarded({ relaxedSimd: false, numThreads: 2 }),
  'simd, 4 threads, all ops shared': () => createGuarded({ relaxedSimd: false, numThreads: 4, minSharedWork: 0 }),
  'simd, 2 threads, all ops shared, every buffer in another memory': createGuardedScattered,
  'relaxed, on the calling thread': () => createGuarded({ relaxedSimd: true, numThreads: 1, maxCallerMs: 1000 }),
  'relaxed, 1 worker': () => createGuarded({ relaxedSimd: true, numThreads: 1 }),
  'relaxed, 4 threads': () => createGuarded({ relaxedSimd: true, numThreads: 4 }),
  'relaxed, without shared memory': () => createGuarded({ relaxedSimd: true, sharedMemory: false }),
  'relaxed, 2 threads, all ops shared': () => createGuarded({ relaxedSimd: true, numThreads: 2, minSharedWork: 0 }),
};
const named = (pattern: RegExp): string[] => Object.keys(variants).filter((name) => pattern.test(name));

/** Both builds have the same source, and how threads share work is in the source: a defect is of a build or of a share, not of a pair. */
const groups = [named(/^simd/), named(/^relaxed/), named(/all ops shared/), named(/^(?!.*all ops shared)/)];

/** Variants that differ from the others in more than kernels and the number of threads. */
const contractOf = [
  'simd, 1 thread, jobs by message',
  'simd, 2 threads, all ops shared, every buffer in another memory',
  'relaxed, on the calling thread',
  'relaxed, 2 threads, all ops shared',
  'relaxed, without shared memory',
];

describeVariants({
  variants,
  groups,
  expectedSupport: JSON.parse(readFileSync(new URL('support.json', import.meta.url), 'utf8')) as SupportTable,
  coverage: testCoverage,
  contractOf: testCoverage === 'full' ? Object.keys(variants) : contractOf,
});

/** Ops with a native kernel: it has the name of its op. */
const nativeOps = readdirSync(new URL('../../native/source/ops/', import.meta.url)).map((file) => file.slice(0, -4));

const levels = await usableLevels();

const nativeCaches = new Set(['f32', 'f16', 'bf16', 'q8_0', 'q4_0']);
const nativeWeights = new Set([
  ...['f32', 'f16', 'bf16', 'q8_0', 'q4_0', 'q5_0', 'q2_K', 'q3_K', 'q4_K', 'q5_K', 'q6_K'],
  ...['iq4_nl', 'iq4_xs', 'mxfp4'],
]);
/** Query heads of a KV head that page-topk takes. */
const maxGroup = 64;

/** Whether the native kernel of its op has to compute a case; the guide names what it leaves to WebAssembly. */
function isNativeCase({ op, name, dtypes = {}, attributes = {} }: KernelCase): boolean {
  const { keys = 'f32', values = 'f32', weight = 'f32' } = dtypes;
  if (![keys, values].every((dtype) => nativeCaches.has(dtype)) || !nativeWeights.has(weight)) return false;
  if (name.endsWith(', mass') || name.startsWith('biases')) return false;
  if (/^sinks|learned sinks/.test(name) && op !== 'attention') return false;
  const numTokens = Number(/(?:^|, )(\d+) x /.exec(name)?.[1]);
  if (op.startsWith('sparse-') && numTokens >= minPanelTokens) return false;
  if (op === 'page-topk-attention' && Number(/^(\d+) heads on one,/.exec(name)?.[1]) > maxGroup) return false;
  return op !== 'subquadratic-attention' || (attributes['causal'] === true && attributes['window'] === 0);
}

const numsOfThreads = testCoverage === 'full' ? [1, 2, 4] : [1, 4];

/** The same case, whose tensors and expected results are computed once for all variants. */
function createdOnce(kernelCase: KernelCase): KernelCase {
  let data: ReturnType<KernelCase['create']> | undefined;
  return { ...kernelCase, create: (...values) => (data ??= kernelCase.create(...values)) };
}

/** Native kernels at each level of this machine, within the same bounds; expert-matmul has one for 8-bit activations alone. */
describe.each(levels)('native kernels: %s', async (native) => {
  const variants = await Promise.all(
    numsOfThreads.map(async (numThreads) => {
      const backend = await createWasmBackend({
        ...{ host: nativeHost, maxMemoryBytes },
        native,
        numThreads,
        activations: 'f32',
        minSharedWork: 0,
      });
      return { backend, checked: guarded(backend, numThreads) };
    }),
  );
  afterAll(() => Promise.all(variants.map(({ backend }) => backend.dispose())));
  const numRun = (): number => variants.reduce((sum, { backend }) => sum + backend.numNativeRecords, 0);

  test.each(nativeOps.filter((op) => op !== 'expert-matmul'))('%s', async (op) => {
    const all = selectCases(kernelCases[op] as readonly KernelCase[], testCoverage);
    const cases = sampled(all, levels.length, levels.indexOf(native)); // each at one level: the source is the same
    const assigned = assignVariants(cases, Object.keys(variants), testCoverage);
    const sizesOf = assignVariants(cases, sizeKinds, testCoverage);
    const failures: string[] = [];
    for (const kernelCase of cases) {
      const shared = createdOnce(kernelCase);
      for (const index of assigned.get(kernelCase) ?? []) {
        const { checked } = variants[Number(index)] as (typeof variants)[number];
        const sizes = sizesOf.get(kernelCase);
        const before = numRun();
        failures.push(...(await checkKernelCase(checked, shared, { arithmetic: float32Arithmetic(true), sizes })));
        if (numRun() > before !== isNativeCase(kernelCase)) failures.push(`${kernelCase.name}: which side computed it`);
      }
    }
    expect(failures).toEqual([]);
  });
});

const int8Variants = {
  'int8, relaxed, 3 threads': { relaxedSimd: true, numThreads: 3 },
  'int8, simd, 1 thread': { relaxedSimd: false, numThreads: 1 },
  'int8, maddubs, 2 threads': { relaxedSimd: true, numThreads: 2, int8Dot: 'maddubs' },
} as const;

/** With 8-bit activations, which exceed the bounds for f32, only scratch is checked; of the ops that use them. */
describe.each(Object.entries(int8Variants))('scratch: %s', async (name, variant) => {
  const backend = await createGuarded({ ...variant, activations: 'int8', minSharedWork: 0 });
  afterAll(() => backend.dispose());
  const ops = [...kernelOps].filter((op) => /matmul|combine|feed/.test(op));
  test.each(ops)('%s', async (op) => {
    const cases = selectCases(kernelCases[op] as readonly KernelCase[], testCoverage);
    const assigned = assignVariants(cases, Object.keys(int8Variants), testCoverage);
    const sizesOf = assignVariants(cases, sizeKinds, testCoverage);
    const failures: string[] = [];
    for (const kernelCase of cases.filter((each) => assigned.get(each)?.includes(name))) {
      const sizes = sizesOf.get(kernelCase);
      const found = await checkKernelCase(backend, kernelCase, { arithmetic: float32Arithmetic(true), sizes });
      failures.push(...found.filter((failure) => failure.includes('scratch')));
    }
    expect(failures).toEqual([]);
  });
});
