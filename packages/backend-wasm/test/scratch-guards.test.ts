/**
 * Kernels stay within the scratch that the host plans for them, and read only what they wrote: before every run it is filled
 * with NaN, and so are guard bands after the shared scratch and that of each thread, which no run may change.
 */
import {
  assignVariants,
  checkKernelCase,
  float32Arithmetic,
  kernelCases,
  selectCases,
  type KernelCase,
} from '@winnow/conformance';
import type { Backend } from '@winnow/ops';
import { testCoverage } from '@winnow/test-utils';
import { afterAll, describe, expect, test, vi } from 'vitest';
import { createWasmBackend } from '../src/index.js';
import { kernelOps } from '../src/kernels/kernel-ops.generated.js';
import { jobWords } from '../src/kernels/layout.generated.js';
import type { LoadedPart } from '../src/program/program-part.js';
import type { Scratch } from '../src/program/scratch-meter.js';

const guardBytes = 4096;
const guardByte = 0xff;

/** The latest plan, and the loaded parts. */
const planned = vi.hoisted(() => ({ sharedBytes: 0, parts: [] as { loaded: unknown; sharedBytes: number }[] }));

vi.mock('../src/program/scratch-meter.js', async (importOriginal) => {
  const original = await importOriginal<typeof import('../src/program/scratch-meter.js')>();
  class GuardedMeter extends original.ScratchMeter {
    override measure(...args: Parameters<InstanceType<typeof original.ScratchMeter>['measure']>): Scratch {
      const { sharedBytes, localBytes } = super.measure(...args);
      planned.sharedBytes = sharedBytes;
      return { sharedBytes: sharedBytes + guardBytes, localBytes: localBytes + guardBytes };
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
function guarded(backend: Backend, numThreads: number): Backend {
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
        for (const { all } of scratch) for (const bytes of all) bytes.fill(guardByte);
        await executable.run(scalars, runOptions);
        for (const [index, band] of scratch.flatMap(({ bands }) => bands).entries()) {
          const at = band.findIndex((byte) => byte !== guardByte);
          if (at >= 0) throw new Error(`scratch ${index} was left: byte ${at} behind its end is ${band[at]}`);
        }
      };
      return Object.assign(Object.create(executable) as typeof executable, { run });
    },
  };
}

const variants = {
  'f32, relaxed, 2 threads': { activations: 'f32', relaxedSimd: true, numThreads: 2 },
  'int8, relaxed, 3 threads': { activations: 'int8', relaxedSimd: true, numThreads: 3 },
  'int8, simd, 1 thread': { activations: 'int8', relaxedSimd: false, numThreads: 1 },
  'int8, maddubs, 2 threads': { activations: 'int8', relaxedSimd: true, numThreads: 2, int8Dot: 'maddubs' },
} as const;

/** Only these depend on how 8-bit dot products are computed. */
const usesInt8 = (op: string): boolean => /matmul|combine|feed/.test(op);

/** The cases of an op by variant: scratch depends on shapes, dtypes and threads, which `assignVariants` combines. */
function casesOf(op: string, name: string): readonly KernelCase[] {
  const cases = selectCases(kernelCases[op] ?? [], testCoverage);
  const names = Object.keys(variants).filter((each) => usesInt8(op) || !each.includes('maddubs'));
  const assigned = assignVariants(cases, names, testCoverage);
  return cases.filter((each) => assigned.get(each)?.includes(name));
}

describe.each(Object.entries(variants))('%s', async (name, variant) => {
  const { activations, numThreads } = variant;
  const inner = await createWasmBackend({ maxMemoryBytes: 2 ** 26, maxCallerMs: 0, minSharedWork: 0, ...variant });
  afterAll(() => inner.dispose());
  const backend = guarded(inner, numThreads);

  // ops without a kernel have no scratch
  const ops = [...kernelOps].filter((op) => casesOf(op, name).length > 0);
  test.each(ops)('%s', async (op) => {
    const failures: string[] = [];
    for (const kernelCase of casesOf(op, name)) {
      const found = await checkKernelCase(backend, kernelCase, { arithmetic: float32Arithmetic(true) });
      // int8 activations exceed the bounds for f32
      failures.push(...found.filter((failure) => activations === 'f32' || failure.includes('scratch')));
    }
    expect(failures).toEqual([]);
  });
});
