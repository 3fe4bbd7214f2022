/** In the page: the conformance suite over the WebAssembly backend. */
import { createWasmBackend, type CreateWasmBackendOptions, type WasmBackend } from '@winnow/backend-wasm';
import {
  assignGroups,
  assignVariants,
  checkKernelCase,
  checkProgramCase,
  checkUnsupportedCase,
  compareSupport,
  contractChecks,
  float32Arithmetic,
  kernelCases,
  programCases,
  selectCases,
  sizeKinds,
  soleChecks,
  supportTable,
  type Coverage,
  type KernelCase,
  type NamedCase,
  type SupportTable,
} from '@winnow/conformance';

export interface PageFacts {
  readonly isIsolated: boolean;
  readonly hasSharedMemory: boolean;
}

export interface BackendFacts {
  readonly variant: string;
  readonly numThreads: number;
  /** Differences between supported and expected ops. */
  readonly surprises: readonly string[];
}

/** Options by the name used in reports. */
export type Settings = Readonly<Record<string, CreateWasmBackendOptions>>;

export interface Outcome {
  /** Number of cases that ran on every backend. */
  readonly numCases: number;
  /** Failures; empty if every case passed. */
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

/** Computes the expected result, which takes as long as the case, once for all backends. */
function withSharedTruth<Truth, Arguments extends unknown[]>(
  create: (...values: Arguments) => Truth,
): (...values: Arguments) => Truth {
  let truth: Truth | undefined;
  return (...values) => (truth ??= create(...values));
}

/** Runs each case on the backends that the coverage selects: kernels are the same everywhere, so that these take turns. */
async function onBackends<Case extends NamedCase>(
  cases: readonly Case[],
  coverage: Coverage,
  check: (backend: WasmBackend, oneCase: Case) => Promise<readonly string[]>,
): Promise<string[]> {
  const failures: string[] = [];
  const assigned = assignGroups(cases, [Object.keys(settings)], coverage);
  for (const [oneCase, names] of assigned) {
    for (const [name, backend] of backends) {
      if (!names.includes(name)) continue;
      failures.push(...(await check(backend, oneCase)).map((failure) => `${name}: ${failure}`));
    }
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

  /** Every `caseStep`-th of the selected cases. */
  async kernels(input: { op: string; coverage: Coverage; caseStep: number }): Promise<Outcome> {
    const { op, coverage, caseStep } = input;
    const cases = selectCases(kernelCases[op] ?? [], coverage)
      .filter((_, index) => index % caseStep === 0)
      .map((kernelCase) => ({ ...kernelCase, create: withSharedTruth(kernelCase.create) }));
    const sizesOf = assignVariants(cases, sizeKinds, coverage);
    const failures = await onBackends(cases, coverage, (backend, kernelCase) => {
      const check = isExpected(kernelCase) ? checkKernelCase : checkUnsupportedCase;
      return check(backend, kernelCase, { arithmetic, sizes: sizesOf.get(kernelCase) });
    });
    return { numCases: cases.length, failures };
  },

  /** Every `caseStep`-th program. */
  async programs({ coverage, caseStep }: { coverage: Coverage; caseStep: number }): Promise<Outcome> {
    const cases = programCases
      .filter((_, index) => index % caseStep === 0)
      .map((programCase) => ({ ...programCase, create: withSharedTruth(programCase.create) }));
    const failures = await onBackends(cases, coverage, (backend, programCase) =>
      checkProgramCase(backend, programCase, { arithmetic, allowFallback: true }),
    );
    return { numCases: cases.length, failures };
  },

  /** Checks on the backend of each setting; some on backends of their own. */
  async contract({ names, coverage }: { names: readonly string[]; coverage: Coverage }): Promise<Outcome> {
    const failures: string[] = [];
    for (const setting of names) {
      const backend = new Map(backends).get(setting);
      if (backend === undefined) throw new Error(`expected a backend of the setting ${setting}, found none`);
      // starting workers takes longer than most checks
      const kept: WasmBackend = Object.create(backend, { dispose: { value: async () => {} } });
      for (const [name, check] of Object.entries(contractChecks)) {
        const isSole = coverage === 'full' || soleChecks.has(name);
        const found = await check(async () => (isSole ? createWasmBackend(settings[setting]) : kept));
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
