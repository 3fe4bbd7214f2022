/** In the page: the conformance suite over the WebAssembly backend. */
import { createWasmBackend, type CreateWasmBackendOptions, type WasmBackend } from '@winnow/backend-wasm';
import {
  checkKernelCase,
  checkProgramCase,
  checkUnsupportedCase,
  compareSupport,
  contractChecks,
  float32Arithmetic,
  kernelCases,
  programCases,
  selectCases,
  supportTable,
  type Coverage,
  type KernelCase,
  type SupportTable,
} from '@winnow/conformance';

export interface PageFacts {
  readonly isIsolated: boolean;
  readonly hasSharedMemory: boolean;
}

export interface BackendFacts {
  readonly variant: string;
  readonly numThreads: number;
  /** Differences between what it supports and what was expected. */
  readonly surprises: readonly string[];
}

/** Options by the name that failures are reported with. */
export type Settings = Readonly<Record<string, CreateWasmBackendOptions>>;

export interface Outcome {
  /** Cases that ran, each on every backend. */
  readonly numCases: number;
  /** Empty when all passed. */
  readonly failures: readonly string[];
}

const arithmetic = float32Arithmetic();
let backends: readonly (readonly [string, WasmBackend])[] = [];
let settings: Settings = {};
let expectedSupport: SupportTable = {};

function isExpected({ op, dtypes }: KernelCase): boolean {
  const variants = Object.values(dtypes);
  return (variants.length === 0 ? ['f32'] : variants).every((dtype) => expectedSupport[op]?.[dtype] === true);
}

/** Computes the truth, which takes as long as running the case, once for all backends. */
function withSharedTruth<Truth, Arguments extends unknown[]>(
  create: (...values: Arguments) => Truth,
): (...values: Arguments) => Truth {
  let truth: Truth | undefined;
  return (...values) => (truth ??= create(...values));
}

async function onEveryBackend(check: (backend: WasmBackend) => Promise<readonly string[]>): Promise<string[]> {
  const failures: string[] = [];
  for (const [name, backend] of backends) {
    failures.push(...(await check(backend)).map((failure) => `${name}: ${failure}`));
  }
  return failures;
}

const api = {
  async pageFacts(_input: null): Promise<PageFacts> {
    const { crossOriginIsolated } = globalThis as unknown as { readonly crossOriginIsolated: boolean };
    return { isIsolated: crossOriginIsolated, hasSharedMemory: typeof SharedArrayBuffer === 'function' };
  },

  async create(input: { settings: Settings; expectedSupport: SupportTable }): Promise<Record<string, BackendFacts>> {
    ({ settings, expectedSupport } = input);
    const names = Object.keys(settings);
    backends = await Promise.all(names.map(async (name) => [name, await createWasmBackend(settings[name])] as const));
    const facts = backends.map(([name, backend]): [string, BackendFacts] => {
      const surprises = compareSupport(supportTable(backend), expectedSupport);
      return [name, { variant: backend.variant, numThreads: backend.numThreads, surprises }];
    });
    return Object.fromEntries(facts);
  },

  async kernels({ op, coverage }: { op: string; coverage: Coverage }): Promise<Outcome> {
    const failures: string[] = [];
    const cases = selectCases(kernelCases[op] ?? [], coverage);
    for (const kernelCase of cases) {
      const check = isExpected(kernelCase) ? checkKernelCase : checkUnsupportedCase;
      const shared = { ...kernelCase, create: withSharedTruth(kernelCase.create) };
      failures.push(...(await onEveryBackend((backend) => check(backend, shared, { arithmetic }))));
    }
    return { numCases: cases.length, failures };
  },

  async programs(_input: null): Promise<Outcome> {
    const failures: string[] = [];
    const options = { arithmetic, allowFallback: true };
    for (const programCase of programCases) {
      const shared = { ...programCase, create: withSharedTruth(programCase.create) };
      failures.push(...(await onEveryBackend((backend) => checkProgramCase(backend, shared, options))));
    }
    return { numCases: programCases.length, failures };
  },

  /** These checks make backends of their own. */
  async contract(_input: null): Promise<Outcome> {
    const failures: string[] = [];
    for (const [setting, options] of Object.entries(settings)) {
      for (const [name, check] of Object.entries(contractChecks)) {
        const found = await check(() => createWasmBackend(options));
        failures.push(...found.map((failure) => `${setting}: ${name}: ${failure}`));
      }
    }
    return { numCases: Object.keys(contractChecks).length, failures };
  },

  async dispose(_input: null): Promise<void> {
    for (const [, backend] of backends) await backend.dispose();
    backends = [];
  },
};

export type ConformancePage = typeof api;

Object.assign(globalThis, { api });
